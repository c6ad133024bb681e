// @ts-check
/** The versions of an applet that are kept, and the way back to one of them. */
import { html, useState } from '../../../vendor/preact.js';
import { get, put } from '../../../core/api.js';
import { download } from '../../../core/download.js';
import { attempt, useLoad } from '../../../core/load.js';
import { quoted, size } from '../../../core/format.js';
import { Ago, Badge, Do, Mark, Show, Table, say } from '../../../parts/basics.js';
import { AsCommand } from '../../../parts/code.js';
import { Dialog } from '../../../parts/dialog.js';
import { Form } from '../../../parts/form.js';
import * as words from '../../../words/en/applets.js';
import { actions } from '../../../words/en/common.js';

const DIGITS = 12;
const HANDLERS = 3;

/** @param {{project: string, applet: Api.AppletReply, number: number, onClose: () => void, onDone: () => void}} p */
function RollBack({ project, applet, number, onClose, onDone }) {
  const work = async () => {
    await put(`/applet/data/${applet.appletID}/versions/${number}`);
    say(words.rolledBack(applet.name, number));
    onDone();
    onClose();
  };
  return html`<${Dialog} title=${words.rollBackTitle(applet.name, number)} onClose=${onClose}><${Form} submit=${words.rollBack} work=${work}><p>${words.rollBackText}</p><//>
    <${AsCommand} text=${`fieldbrook applet rollback ${quoted(project)} ${quoted(applet.name)} ${number}`} /><//>`;
}

/** @param {{one: any, back: (number: number) => void}} p */
function Row({ one, back }) {
  const save = () => attempt(async () => download(await get(`/resource/data/${one.resourceID}`, {}, { blob: true }), one.wasmName));
  return html`<tr><td>${one.version}${one.current && html` <${Badge} kind="good">${words.current}<//>`}</td><td>${one.wasmName}</td><td class="mono" title=${one.sha256}>${one.sha256?.slice(0, DIGITS)}</td><td class="num">${size(one.size)}</td>
    <td class="mono">${one.handlers.slice(0, HANDLERS).join(', ')}${one.handlers.length > HANDLERS ? ` +${one.handlers.length - HANDLERS}` : ''}</td><td>${one.author ?? ''}</td><td class="dim"><${Ago} at=${one.createdAt} /></td>
    <td class="end"><span class="row-actions">${!one.current && html`<${Do} icon="back" class="small" aria-label=${words.rollBackTo(one.version)} onClick=${() => back(one.version)}>${words.rollBack}<//>`}
      <${Mark} icon="download" label=${words.download(one.version)} title=${words.download(one.version)} onClick=${save} /></span></td></tr>`;
}

/** @param {{project: string, applet: Api.AppletReply, again: () => void}} p */
export function Versions({ project, applet, again }) {
  const [number, back] = useState(0);
  const loaded = useLoad((get) => get(`/applet/data/${applet.appletID}/versions`), [applet.appletID, applet.version, applet.updatedAt]);
  const { version, module, digest, size: bytes, handlers, author, time } = words.versionColumns;
  const done = () => {
    loaded.again();
    again();
  };
  return html`<${Show} of=${loaded} rows=${2}>${(/** @type {any} */ { data }) => html`<${Table} label=${`${words.versions}, ${applet.name}`} columns=${[version, module, digest, [bytes, 'num'], handlers, author, time, [actions, 'hidden']]}>${data.map((/** @type {Api.VersionReply} */ one) => html`<${Row} key=${one.version} one=${one} back=${back} />`)}<//>`}<//>
    ${number > 0 && html`<${RollBack} project=${project} applet=${applet} number=${number} onClose=${() => back(0)} onDone=${done} />`}`;
}
