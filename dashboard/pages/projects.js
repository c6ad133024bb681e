// @ts-check
/** All projects of the account: create, import, open. */
import { html, useState } from '../vendor/preact.js';
import { call, post } from '../core/api.js';
import { count, quoted, rate } from '../core/format.js';
import { useLoad } from '../core/load.js';
import { filter, go, query, to } from '../core/route.js';
import { rates } from '../core/series.js';
import { isAdmin, session } from '../core/session.js';
import { Ago, AppletNames, Card, Do, Empty, Heading, Show, Table, say, typed } from '../parts/basics.js';
import { AsCommand } from '../parts/code.js';
import { Dialog } from '../parts/dialog.js';
import { Field, Form, Text } from '../parts/form.js';
import * as words from '../words/en/projects.js';
import { actions } from '../words/en/common.js';

const EVERY_MS = 15_000;

/** @param {{onClose: () => void, changed: () => void}} p */
function NewProject({ onClose, changed }) {
  const [name, type] = useState('');
  const work = async (/** @type {Values} */ form) => {
    await post('/project', { name: form.name, description: form.description });
    say(words.createdToast(form.name));
    changed();
    go(to('projects', form.name, 'applets'));
  };
  return html`<${Dialog} title=${words.create} onClose=${onClose}><${Form} submit=${words.create} work=${work}>
    <${Field} label=${words.name} hint=${words.nameHint}><${Text} name="name" required autofocus maxlength="32" pattern="[A-Za-z0-9_]{1,32}" autocapitalize="none" onInput=${typed(type)} /><//>
    <${Field} label=${words.description}><input name="description" maxlength="256" autocomplete="off" /><//><//>
    <${AsCommand} text=${`fieldbrook project create ${quoted(name || 'NAME')}`} /><//>`;
}

/** @param {{onClose: () => void, changed: () => void}} p */
function ImportProject({ onClose, changed }) {
  const work = async (/** @type {Values} */ { file, name, tokens }) => {
    const form = new FormData();
    form.append('file', file, file.name);
    form.append('info', JSON.stringify({ ...(name ? { name } : {}), newTokens: tokens === 'on' }));
    await call('POST', '/project/import', { form });
    say(words.importedToast);
    changed();
    onClose();
  };
  return html`<${Dialog} title=${words.imported} onClose=${onClose}><${Form} submit=${words.imported} work=${work}>
    <${Field} label=${words.file} hint=${words.importHint}><input name="file" type="file" accept=".fieldbrook" required /><//>
    <${Field} label=${words.name} hint=${words.nameKept}><${Text} name="name" maxlength="32" pattern="[A-Za-z0-9_]{1,32}" /><//>
    <label class="check"><input type="checkbox" name="tokens" />${words.newTokens}</label><//><${AsCommand} text="fieldbrook project import FILE" /><//>`;
}

/** A number that is red unless it is 0. @param {{value: number | undefined, text: (value: number) => string, href?: string}} p */
const Bad = ({ value = 0, text, href }) => html`<td class="num">${value > 0 ? (href ? html`<a class="error" href=${href}>${text(value)}</a>` : html`<span class="error">${text(value)}</span>`) : html`<span class="dim">0</span>`}</td>`;

/** @param {{list: Api.ProjectRow[]}} p */
function List({ list }) {
  const { columns } = words;
  const several = list.some((one) => one.accountID !== session.value?.accountID);
  const headings = [columns.name, ...(several ? [[columns.owner]] : []), [columns.events, 'num'], [columns.failed, 'num'], [columns.letters, 'num'], columns.applets, columns.created, columns.id, [actions, 'hidden']];
  const row = (/** @type {Api.ProjectRow} */ one) => html`<tr key=${one.projectID}><td><a href=${to('projects', one.projectName)}>${one.projectName}</a></td>${several && html`<td class="cut" title=${one.owner}>${one.owner}</td>`}
    <td class="num">${rate(rates.value[one.projectName]?.events ?? 0)}</td><${Bad} value=${rates.value[one.projectName]?.failed} text=${rate} /><${Bad} value=${one.deadLetters} text=${count} href=${to('projects', one.projectName, 'letters')} />
    <td><${AppletNames} of=${one} /></td>
    <td class="dim"><${Ago} at=${one.createdAt} /></td><td class="dim mono">${one.projectID}</td><td class="end"><a href=${to('projects', one.projectName, 'settings')} aria-label=${words.settingsOf(one.projectName)} title=${words.settingsHint}>${words.settings}</a></td></tr>`;
  return html`<${Table} label=${words.title} columns=${headings}>${list.map(row)}<//>`;
}

/** @param {{changed: () => void}} p */
export function Page({ changed }) {
  const projects = useLoad((get) => get('/project/detail_list', { size: 1000, all: isAdmin(), deadLetters: true }), [], EVERY_MS);
  const changedHere = () => {
    changed();
    projects.again();
  };
  const dialog = query.value.new ? 'new' : query.value.import ? 'import' : '';
  const close = () => filter({ new: '', import: '' });
  const wanted = (query.value.name ?? '').toLowerCase();
  return html`<div class="page"><${Heading} title=${words.title} text=${words.text}>
      <${Do} icon="upload" onClick=${() => filter({ import: true })}>${words.imported}<//>
      <${Do} icon="plus" class="primary" onClick=${() => filter({ new: true })}>${words.create}<//><//>
    <${Card} controls=${html`<input type="search" placeholder=${words.find} aria-label=${words.find} defaultValue=${query.value.name ?? ''} onInput=${typed((v) => filter({ name: v }))} />`} title=${words.title}>
      <${Show} of=${projects}>${(/** @type {{data: any[]}} */ { data }) => {
        const list = data.filter((one) => one.projectName.toLowerCase().includes(wanted));
        return list.length ? html`<${List} list=${list} />` : html`<${Empty} title=${words.none} icon="box">${words.noneHint}<//>`;
      }}<//><//>
    ${dialog === 'new' && html`<${NewProject} onClose=${close} changed=${changedHere} />`}${dialog === 'import' && html`<${ImportProject} onClose=${close} changed=${changedHere} />`}</div>`;
}
