// @ts-check
/** Contract ABIs that a project keeps for its monitors. */
import { html, useRef, useState } from '../../../vendor/preact.js';
import { post, remove, segment } from '../../../core/api.js';
import { useLoad } from '../../../core/load.js';
import { quoted, size } from '../../../core/format.js';
import { Ago, Card, Do, Empty, Icon, Mark, Show, Table, say } from '../../../parts/basics.js';
import { AsCommand, Code } from '../../../parts/code.js';
import { Confirm, Dialog } from '../../../parts/dialog.js';
import { FileButton } from '../../../parts/file_button.js';
import { Field, Form, Text } from '../../../parts/form.js';
import * as words from '../../../words/en/triggers.js';
import { actions, remove as removeWord } from '../../../words/en/common.js';

const SHOWN = 6;

/** The ABI in a text: the ABI itself, or compiler output with a field `abi`. @param {string} text */
function abiIn(text) {
  let parsed;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw new Error(words.notJson);
  }
  const abi = Array.isArray(parsed) ? parsed : parsed?.abi;
  if (!Array.isArray(abi)) throw new Error(words.notAbi);
  return abi;
}

/** @param {{path: `/contract_abi/${string}`, project: string, onClose: () => void, onDone: () => void}} p */
function AddAbi({ path, project, onClose, onDone }) {
  const text = useRef(/** @type {any} */ (null));
  const name = useRef(/** @type {any} */ (null));
  const read = async (/** @type {File} */ file) => {
    text.current.value = await file.text();
    name.current.value ||= file.name.replace(/\.json$/i, '');
  };
  const work = async (/** @type {Values} */ form) => {
    await post(path, { name: form.name, abi: abiIn(form.abi) });
    say(words.abiAdded(form.name));
    onDone();
    onClose();
  };
  return html`<${Dialog} title=${words.addAbi} onClose=${onClose}><${Form} submit=${words.addAbi} work=${work}>
    <${Field} label=${words.abiName} hint=${words.abiNameHint}><${Text} ref=${name} name="name" required autofocus maxlength="64" /><//>
    <${Field} label=${words.abiFile} hint=${words.abiPaste}><textarea ref=${text} name="abi" required rows="8" spellcheck=${false}></textarea><//><div><${FileButton} accept=".json,.abi" onFile=${read}><${Icon} name="upload" />${words.chooseFile}<//></div><//>
    <${AsCommand} text=${`fieldbrook abi add ${quoted(project)} NAME FILE`} /><//>`;
}

/** @param {{path: `/contract_abi/${string}`, name: string, onClose: () => void}} p */
function ShowAbi({ path, name, onClose }) {
  const loaded = useLoad((get) => get(`${path}/${segment(name)}`), [name]);
  return html`<${Dialog} side title=${name} onClose=${onClose}><${Show} of=${loaded}>${(/** @type {Api.WholeContractAbiReply} */ { abi }) => html`<${Code} label=${words.abi} text=${JSON.stringify(abi, null, 2)} />`}<//><//>`;
}

/** @param {{project: string}} p */
export function Abis({ project }) {
  const [dialog, show] = useState(/** @type {{what: string, name: string} | null} */ (null));
  const path = /** @type {const} */ (`/contract_abi/${segment(project)}`);
  const loaded = useLoad((get) => get(path, { size: 100 }), [project]);
  const close = () => show(null);
  const name = dialog?.name ?? '';
  const { name: title, events, size: bytes, added } = words.abiColumns;
  const row = (/** @type {Api.ContractAbiReply} */ one) => html`<tr key=${one.abiID}><td><button type="button" class="link" aria-label=${words.showAbi(one.name)} onClick=${() => show({ what: 'show', name: one.name })}>${one.name}</button></td>
    <td><span class="line">${one.events.slice(0, SHOWN).map((/** @type {string} */ event) => html`<code>${event}</code>`)}${one.events.length > SHOWN && html`<span class="dim">${words.moreEvents(one.events.length - SHOWN)}</span>`}</span></td><td class="num">${size(one.sizeBytes)}</td><td class="dim"><${Ago} at=${one.createdAt} /></td>
    <td class="end"><${Mark} icon="trash" label=${words.deleteAbi(one.name)} title=${removeWord} onClick=${() => show({ what: 'delete', name: one.name })} /></td></tr>`;
  const content = (/** @type {Api.ContractAbiPage} */ { data }) => (data.length ? html`<${Table} label=${words.abis} columns=${[title, events, [bytes, 'num'], added, [actions, 'hidden']]}>${data.map(row)}<//>` : html`<${Empty} title=${words.abisNone}>${words.abisNoneHint}<//>`);
  return html`<${Card} title=${words.abis} controls=${html`<${Do} icon="plus" onClick=${() => show({ what: 'add', name: '' })}>${words.addAbi}<//>`}><${Show} of=${loaded} rows=${2}>${content}<//>
    ${dialog?.what === 'add' && html`<${AddAbi} path=${path} project=${project} onClose=${close} onDone=${loaded.again} />`}
    ${dialog?.what === 'show' && html`<${ShowAbi} path=${path} name=${name} onClose=${close} />`}
    ${dialog?.what === 'delete' && html`<${Confirm} title=${words.deleteAbi(name)} text=${words.deleteAbiText} submit=${removeWord} onClose=${close} work=${async () => { await remove(`${path}/${segment(name)}`); say(words.abiDeleted); loaded.again(); }} />`}<//>`;
}
