// @ts-check
/** Traffic limits of a project: how many calls it may get in a window of time. */
import { html, useState } from '../../../vendor/preact.js';
import { post, put, remove, segment } from '../../../core/api.js';
import { useLoad } from '../../../core/load.js';
import { count } from '../../../core/format.js';
import { isAdmin } from '../../../core/session.js';
import { Ago, Card, Do, Mark, Show, Table, say } from '../../../parts/basics.js';
import { Confirm, Dialog } from '../../../parts/dialog.js';
import { Field, Form } from '../../../parts/form.js';
import * as words from '../../../words/en/limits.js';
import { actions, edit, remove as removeWord, save } from '../../../words/en/common.js';

const KINDS = /** @type {(keyof typeof words.kinds)[]} */ (Object.keys(words.kinds));

/** @param {{path: `/traffic/x/${string}`, limit: Api.TrafficLimitReply | null, free: (keyof typeof words.kinds)[], onClose: () => void, onDone: () => void}} p */
function LimitDialog({ path, limit, free, onClose, onDone }) {
  const work = async (/** @type {Values} */ form) => {
    const body = { threshold: Number(form.threshold), duration: form.duration.trim(), publisherThreshold: Number(form.share) || 0 };
    if (limit) await put(`${path}/${limit.trafficLimitID}`, body);
    else await post(path, { ...body, apiType: form.kind });
    say(words.saved);
    onDone();
    onClose();
  };
  return html`<${Dialog} title=${limit ? words.editTitle : words.add} onClose=${onClose}><${Form} submit=${save} work=${work}>
    ${!limit && html`<${Field} label=${words.kind}><select name="kind">${free.map((kind) => html`<option value=${kind}>${words.kinds[kind]}</option>`)}</select><//>`}
    <div class="fields"><${Field} label=${words.threshold}><input name="threshold" type="number" min="1" required autofocus defaultValue=${limit?.threshold ?? 1000} /><//>
    <${Field} label=${words.duration} hint=${words.durationHint}><input name="duration" required spellcheck=${false} defaultValue=${limit?.duration ?? '1m'} /><//></div>
    <${Field} label=${words.share} hint=${words.shareHint}><input name="share" type="number" min="0" defaultValue=${limit?.publisherThreshold || ''} /><//><//><//>`;
}

/** @param {{list: Api.TrafficLimitReply[], open: (what: string, limit: Api.TrafficLimitReply) => void}} p */
const List = ({ list, open }) => {
  const { kind, threshold, each, since } = words.columns;
  return html`<${Table} label=${words.title} columns=${[kind, threshold, each, since, ...(isAdmin() ? [[actions, 'hidden']] : [])]}>
    ${list.map((one) => html`<tr key=${one.trafficLimitID}><td>${words.kinds[/** @type {keyof typeof words.kinds} */ (one.apiType)]}</td><td>${words.per(count(one.threshold), one.duration)}</td>
      <td>${one.publisherThreshold ? words.per(count(one.publisherThreshold), one.duration) : html`<span class="dim">${words.noShare}</span>`}</td><td class="dim"><${Ago} at=${one.startAt} /></td>
      ${isAdmin() && html`<td class="end"><span class="row-actions"><${Mark} icon="edit" label=${words.editTitle} title=${edit} onClick=${() => open('edit', one)} /><${Mark} icon="trash" label=${words.deleteTitle} title=${removeWord} onClick=${() => open('delete', one)} /></span></td>`}</tr>`)}<//>`;
};

/**
 * A card of the limits of a project. Administrators can change them.
 * @param {{project: string, kind?: keyof typeof words.kinds}} p kind: only limits of this kind
 */
export function Limits({ project, kind }) {
  const [dialog, show] = useState(/** @type {{what: string, limit: Api.TrafficLimitReply | null} | null} */ (null));
  const path = /** @type {const} */ (`/traffic/x/${segment(project)}`);
  const loaded = useLoad((get) => get(`${path}/datalist`, { size: 10, apiType: kind }), [project, kind]);
  const known = (loaded.data?.data ?? []).map((one) => one.apiType);
  const free = KINDS.filter((one) => !known.includes(one) && (!kind || kind === one));
  const close = () => show(null);
  const drop = async (/** @type {Api.TrafficLimitReply} */ limit) => {
    await remove(`${path}/data/${limit.trafficLimitID}`);
    say(words.removed);
    loaded.again();
  };
  return html`<${Card} title=${words.title} controls=${isAdmin() && free.length > 0 && loaded.data && html`<${Do} icon="plus" onClick=${() => show({ what: 'add', limit: null })}>${words.add}<//>`}>
    <${Show} of=${loaded} rows=${2}>${(/** @type {Api.TrafficLimitPage} */ { data }) => (data.length ? html`<${List} list=${data} open=${(/** @type {string} */ what, /** @type {Api.TrafficLimitReply} */ limit) => show({ what, limit })} />` : html`<p class="note">${words.none}${!isAdmin() && ` ${words.byAdministrators}`}</p>`)}<//>
    ${known.length > 0 && html`<p class="note">${words.over}</p>`}
    ${dialog && dialog.what !== 'delete' && html`<${LimitDialog} path=${path} limit=${dialog.limit} free=${free} onClose=${close} onDone=${loaded.again} />`}
    ${dialog?.limit && dialog.what === 'delete' && html`<${Confirm} title=${words.deleteTitle} text=${words.deleteText} submit=${removeWord} onClose=${close} work=${drop.bind(null, dialog.limit)} />`}<//>`;
}
