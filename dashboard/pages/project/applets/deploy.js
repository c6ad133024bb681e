// @ts-check
/** The dialog that deploys a module: what it imports and exports, and which events it handles. */
import { html, useState } from '../../../vendor/preact.js';
import { useLoad } from '../../../core/load.js';
import { quoted, size } from '../../../core/format.js';
import { Badge, Do, Mark, Show, say, typed } from '../../../parts/basics.js';
import { AsCommand } from '../../../parts/code.js';
import { Dialog } from '../../../parts/dialog.js';
import { Field, Form, Text } from '../../../parts/form.js';
import { Isolation, isolationOf } from './isolation.js';
import { changeApplet, createApplet, inspect, stem } from './modules.js';
import * as words from '../../../words/en/applets.js';

const DEFAULT = 'DEFAULT';
const NEW = '';
const SHOWN = 20;

/** Functions of the host that a module imports, by the module that it names. @param {{imports: any[]}} p */
function Imports({ imports }) {
  const groups = Object.entries(Object.groupBy(imports, (one) => one.module));
  if (!groups.length) return html`<span class="dim">${words.nothing}</span>`;
  return html`<ul class="plain">${groups.map(([module, list = []]) => html`<li class="line"><span class="dim mono">${module}</span>${list.slice(0, SHOWN).map(({ name, kind, type }) => html`<code title=${type || kind}>${name}</code>`)}${list.length > SHOWN && html`<span class="dim">${words.furtherImports(list.length - SHOWN)}</span>`}</li>`)}</ul>`;
}

/** What the node found in a module. @param {{report: any}} p as `POST /resource/inspect` answers it */
function Check({ report }) {
  const bad = report.problems.length > 0;
  return html`<section class="check-result" aria-label=${words.check}><div class="line"><${Badge} kind=${bad ? 'bad' : 'good'}>${bad ? words.refused : words.passed}<//>${report.runtime && html`<span class="dim">${report.runtime}</span>`}</div>
    ${bad && html`<ul class="plain">${report.problems.map((/** @type {string} */ text) => html`<li class="error">${text}</li>`)}</ul>`}
    ${report.warnings.length > 0 && html`<ul class="plain">${report.warnings.map((/** @type {string} */ text) => html`<li class="warning">${text}</li>`)}</ul>`}
    <dl class="pairs"><dt>${words.size}</dt><dd>${size(report.size)}</dd><dt>${words.digest}</dt><dd class="mono">${report.sha256}</dd>
      ${!bad && html`<dt>${words.handlers}</dt><dd>${report.handlers.length ? html`<span class="line">${report.handlers.map((/** @type {string} */ name) => html`<${Badge} kind="info">${name}<//>`)}</span>` : html`<span class="error">${words.noHandlers}</span>`}</dd>
      <dt>${words.imports}</dt><dd><${Imports} imports=${report.imports} /></dd>`}</dl></section>`;
}

/** Rows of event type and handler. @param {{handlers: string[]}} p */
function Rules({ handlers }) {
  const first = handlers.includes('start') ? 'start' : (handlers[0] ?? '');
  const [rows, set] = useState(first ? [{ id: 0, type: DEFAULT }] : []);
  const add = () => set([...rows, { id: (rows.at(-1)?.id ?? -1) + 1, type: '' }]);
  return html`<fieldset class="rules"><legend>${words.strategies}</legend>
    ${rows.map(({ id, type }) => html`<div class="rule" key=${id}><input name=${`type-${id}`} required aria-label=${words.eventType} defaultValue=${type} spellcheck=${false} autocapitalize="none" /><span aria-hidden="true">→</span>
      <select name=${`handler-${id}`} aria-label=${words.handler}>${handlers.map((name) => html`<option value=${name} selected=${name === first}>${name}</option>`)}</select>
      <${Mark} icon="close" label=${words.removeRow(type || words.eventType)} onClick=${() => set(rows.filter((one) => one.id !== id))} /></div>`)}
    <div class="line"><${Do} icon="plus" class="small" disabled=${!first} onClick=${add}>${words.addRow}<//><small class="dim">${words.eventTypeHint}</small></div></fieldset>`;
}

/** The strategies that a new version keeps. @param {{strategies: any[], handlers: string[]}} p */
const Kept = ({ strategies, handlers }) => html`<div><p class="hint">${strategies.length ? words.kept : words.noStrategies}</p><ul class="plain">${strategies.map(({ eventType, handler }) => html`<li class="line"><code>${eventType}</code> → <code>${handler}</code>${!handlers.includes(handler) && html`<${Badge} kind="warn">${words.missing(handler)}<//>`}</li>`)}</ul></div>`;

/** @param {Values} form */
const rulesOf = (form) => Object.keys(form).filter((name) => name.startsWith('type-')).map((name) => ({ eventType: form[name].trim(), handler: form[name.replace('type-', 'handler-')] }));

/**
 * @param {{project: string, file: File, applets: Api.AppletReply[], into?: Api.AppletReply, onClose: () => void, onDone: () => void}} p
 *   into: the applet that gets a new version, if it was chosen already
 */
export function Deploy({ project, file, applets, into, onClose, onDone }) {
  const checked = useLoad((_, signal) => inspect(file, signal), [file]);
  const same = into ?? applets.find((one) => one.name === stem(file.name));
  const [chosen, choose] = useState(same?.appletID ?? NEW);
  const applet = applets.find((one) => one.appletID === chosen);
  const work = async (/** @type {Values} */ form) => {
    const answer = applet ? await changeApplet(applet.appletID, file, {}) : await createApplet(project, file, { appletName: form.name, strategies: rulesOf(form), ...isolationOf(form) });
    say(words.deployed(answer.name));
    onDone();
    onClose();
  };
  const fields = (/** @type {Api.ModuleInspection} */ report) => html`<${Check} report=${report} /><${Form} submit=${words.deploy} work=${work} disabled=${report.problems.length > 0}>
    ${applets.length > 0 && html`<${Field} label=${words.target}><select onChange=${typed(choose)}><option value=${NEW}>${words.asNew}</option>${applets.map((one) => html`<option value=${one.appletID} selected=${one.appletID === chosen}>${words.asVersion(one.name, one.version + 1)}</option>`)}</select><//>`}
    ${applet ? html`<${Kept} strategies=${applet.strategies} handlers=${report.handlers} />` : html`<${Field} label=${words.name}><${Text} name="name" required maxlength="64" defaultValue=${stem(file.name)} /><//>
      <${Rules} handlers=${report.handlers} /><${Isolation} />`}<//>
    <${AsCommand} text=${`fieldbrook applet deploy ${quoted(project)} ${quoted(file.name)}${applet ? ` --name ${quoted(applet.name)}` : ''}`} />`;
  return html`<${Dialog} title=${words.deployTitle(file.name)} onClose=${onClose} kind="roomy">
    <${Show} of=${checked} rows=${3}>${fields}<//><//>`;
}
