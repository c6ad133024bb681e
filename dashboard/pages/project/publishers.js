// @ts-check
/** Publishers of a project: who may send events, when each was seen last, and how to connect it. */
import { html, useState } from '../../vendor/preact.js';
import { remove } from '../../core/api.js';
import { useLoad } from '../../core/load.js';
import { NONE, count, day } from '../../core/format.js';
import { filter, query, to } from '../../core/route.js';
import { Ago, Badge, Card, Do, Empty, Mark, Show, Table, typed } from '../../parts/basics.js';
import { Confirm } from '../../parts/dialog.js';
import { AddPublisher, EditPublisher, NewToken } from './publishers/dialogs.js';
import { Connect } from './publishers/connect.js';
import { Limits } from './settings/limits.js';
import * as words from '../../words/en/publishers.js';
import { actions, edit, more, remove as removeWord } from '../../words/en/common.js';

const SHOWN = 200;
const EVERY_MS = 5000;
const SOON_MS = 7 * 86_400_000;

/** @param {{at?: string}} p */
function Expiry({ at }) {
  if (!at) return html`<span class="dim">${words.never}</span>`;
  const left = Date.parse(at) - Date.now();
  return left < SOON_MS ? html`<${Badge} kind=${left < 0 ? 'bad' : 'warn'}><${Ago} at=${at} /><//>` : html`<time dateTime=${at}>${day(at)}</time>`;
}

/** @param {{project: string, one: any, open: (what: string, which: any) => void}} p */
const Row = ({ project, one, open }) => html`<tr>
  <td><button type="button" class="link mono" onClick=${() => filter({ connect: one.publisherID })}>${one.key}</button></td><td class="name">${one.name}</td>
  <td><span class="line">${one.eventTypes?.slice(0, 4).map((/** @type {string} */ type) => html`<${Badge}>${type}<//>`) ?? html`<span class="dim">${words.everyType}</span>`}${one.eventTypes?.length > 4 && html`<span class="dim">+${one.eventTypes.length - 4}</span>`}</span></td>
  <td>${one.lastSeen ? html`<${Ago} at=${one.lastSeen} />` : html`<span class="dim" title=${words.countedHint}>${NONE}</span>`}</td>
  <td class="num">${one.events ? html`<a href=${`${to('projects', project, 'events')}?publisher=${encodeURIComponent(one.key)}`}>${count(one.events)}</a>` : html`<span class="dim" title=${words.countedHint}>${NONE}</span>`}</td><td><${Expiry} at=${one.expiredAt} /></td>
  <td class="end"><span class="row-actions"><button type="button" class="small" aria-label=${words.connectTitle(one.key)} onClick=${() => filter({ connect: one.publisherID })}>${words.connect}</button>
    <${Mark} icon="edit" label=${words.editTitle(one.key)} title=${edit} onClick=${() => open('edit', one)} />
    <${Mark} icon="key" label=${words.rotateTitle(one.key)} title=${words.newToken} onClick=${() => open('token', one)} />
    <${Mark} icon="trash" label=${words.deleteTitle(one.key)} title=${removeWord} onClick=${() => open('delete', one)} /></span></td></tr>`;

/** @param {{project: string, list: any[], open: (what: string, which: any) => void}} p */
const List = ({ project, list, open }) => {
  const { key, name, types, seen, events, expires } = words.columns;
  return html`<${Table} label=${words.title} columns=${[key, name, types, seen, [events, 'num'], expires, [actions, 'hidden']]}>${list.map((one) => html`<${Row} key=${one.publisherID} project=${project} one=${one} open=${open} />`)}<//>`;
};

/** @param {Project} p */
export function Page({ name, project, applets, again }) {
  const [dialog, show] = useState(/** @type {{what: string, which?: any} | null} */ (null));
  const [size, grow] = useState(SHOWN);
  const find = query.value.find ?? '';
  const segment = encodeURIComponent(name);
  const loaded = useLoad((get) => get(`/publisher/x/${segment}`, { find, size }), [name, find, size], EVERY_MS);
  const types = [...new Set(applets.flatMap((one) => (one.strategies ?? []).map((rule) => rule.eventType)))];
  const close = () => show(null);
  const done = () => {
    loaded.again();
    again();
  };
  const connect = (/** @type {string} */ publisherID) => {
    close();
    done();
    filter({ connect: publisherID });
  };
  const open = (/** @type {string} */ what, /** @type {Api.PublisherReply | null} */ which) => show({ what, which });
  const which = dialog?.which;
  const adding = dialog?.what === 'add' || query.value.new;
  const content = (/** @type {any} */ { data, total }) => {
    if (data.length) return html`<${List} project=${name} list=${data} open=${open} />${total > data.length && html`<div class="bar"><span class="dim">${words.shownOf(data.length, total)}</span><button type="button" class="small" onClick=${() => grow(size + SHOWN)}>${more}</button></div>`}`;
    if (find) return html`<${Empty} title=${words.noneFound} icon="search"><//>`;
    return html`<${Empty} title=${words.none} icon="send">${words.noneHint}<p><${Do} icon="plus" class="primary" onClick=${() => open('add', null)}>${words.add}<//></p><//>`;
  };
  return html`<${Card} title=${loaded.data ? words.number(loaded.data.total) : words.title} controls=${html`<input type="search" placeholder=${words.find} aria-label=${words.find} defaultValue=${find} spellcheck=${false} onInput=${typed((v) => filter({ find: v }))} />
      <${Do} icon="plus" class="primary" onClick=${() => open('add', null)}>${words.add}<//>`}>
      ${project.public && html`<p class="note">${words.anonymous}</p>`}<${Show} of=${loaded}>${content}<//><//>
    <${Limits} project=${name} kind="EVENT" />
    ${adding && html`<${AddPublisher} project=${name} onClose=${() => { close(); filter({ new: '' }); }} onDone=${(/** @type {string} */ id) => { filter({ new: '' }); connect(id); }} />`}
    ${dialog?.what === 'edit' && html`<${EditPublisher} project=${name} publisher=${which} onClose=${close} onDone=${done} />`}
    ${dialog?.what === 'token' && html`<${NewToken} project=${name} publisher=${which} onClose=${close} onDone=${() => connect(which.publisherID)} />`}
    ${dialog?.what === 'delete' && html`<${Confirm} title=${words.deleteTitle(which.key)} text=${words.deleteText} submit=${removeWord} onClose=${close} work=${async () => { await remove(`/publisher/data/${which.publisherID}`); done(); }} />`}
    ${query.value.connect && html`<${Connect} key=${query.value.connect} project=${name} publisherID=${query.value.connect} types=${types} onClose=${() => filter({ connect: '' })} />`}`;
}
