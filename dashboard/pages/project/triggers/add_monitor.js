// @ts-check
/** The dialog that adds a monitor of one of three kinds. */
import { html, useState } from '../../../vendor/preact.js';
import { post, segment } from '../../../core/api.js';
import { useLoad } from '../../../core/load.js';
import { quoted } from '../../../core/format.js';
import { AsCommand } from '../../../parts/code.js';
import { Dialog } from '../../../parts/dialog.js';
import { Field, Form, Text } from '../../../parts/form.js';
import { Failed, say } from '../../../parts/basics.js';
import { pathOf } from './monitors.js';
import * as words from '../../../words/en/triggers.js';

const TOPICS = [0, 1, 2, 3];
const hex = { spellcheck: false, autocapitalize: 'none', autocomplete: 'off', class: 'mono' };

/** @typedef {keyof typeof words.kinds} Kind */

/** The body of a request from the fields of the form. @param {Kind} kind @param {Values} form */
function bodyOf(kind, form) {
  const shared = { chainID: Number(form.chain), eventType: form.type.trim(), paused: form.paused === 'on' };
  if (kind === 'chain_tx') return { ...shared, txAddress: form.hash.trim() };
  if (kind === 'chain_height') return { ...shared, height: Number(form.height) };
  const topics = Object.fromEntries(TOPICS.map((n) => [`topic${n}`, (form[`topic${n}`] ?? '').trim()]));
  return { ...shared, contractAddress: form.address.trim(), blockStart: Number(form.from), blockEnd: Number(form.to) || 0, event: form.event.trim(), abiName: form.abi, ...topics };
}

/** @param {{abis: any[]}} p */
const LogFields = ({ abis }) => html`<${Field} label=${words.contract}><input name="address" required pattern="(0x)?[0-9a-fA-F]{40}" placeholder="0x…" ...${hex} /><//>
  <div class="fields"><${Field} label=${words.from}><input name="from" type="number" min="1" required defaultValue="1" /><//><${Field} label=${words.to} hint=${words.toHint}><input name="to" type="number" min="0" /><//></div>
  <${Field} label=${words.abi} hint=${words.abiHint}><select name="abi"><option value="">${words.noAbi}</option>${abis.map((one) => html`<option value=${one.name}>${one.name}</option>`)}</select><//>
  <${Field} label=${words.event} hint=${words.eventHint}><${Text} name="event" list="contract-events" /><//><datalist id="contract-events">${[...new Set(abis.flatMap((one) => one.events))].map((/** @type {string} */ name) => html`<option value=${name} />`)}</datalist>
  <details class="command"><summary>${words.topics}</summary><div class="stack">${TOPICS.map((n) => html`<${Field} label=${words.topic(n)}><input name=${`topic${n}`} pattern="(0x)?[0-9a-fA-F]{64}" ...${hex} /><//>`)}<small class="dim">${words.topicsHint}</small></div></details>`;

/** @param {{kind: Kind, abis: any[]}} p */
function Fields({ kind, abis }) {
  if (kind === 'chain_tx') return html`<${Field} label=${words.hash}><input name="hash" required pattern="(0x)?[0-9a-fA-F]{64}" placeholder="0x…" ...${hex} /><//>`;
  if (kind === 'chain_height') return html`<${Field} label=${words.height}><input name="height" type="number" min="0" required /><//>`;
  return html`<${LogFields} abis=${abis} />`;
}

const COMMANDS = { contract_log: 'add-log PROJECT ADDRESS --from BLOCK', chain_tx: 'add-tx PROJECT HASH', chain_height: 'add-height PROJECT HEIGHT' };

/** @param {{project: string, chains: any[], onClose: () => void, onDone: () => void}} p */
export function AddMonitor({ project, chains, onClose, onDone }) {
  const [kind, choose] = useState(/** @type {Kind} */ ('contract_log'));
  const abis = useLoad((get) => get(`/contract_abi/${segment(project)}`, { size: 100 }), [project]);
  const work = async (/** @type {Values} */ form) => {
    await post(pathOf(project, kind), bodyOf(kind, form));
    say(words.monitorAdded);
    onDone();
    onClose();
  };
  return html`<${Dialog} title=${words.addMonitor} onClose=${onClose}><div class="segments" role="group" aria-label=${words.kind}>${Object.entries(words.kinds).map(([name, title]) => html`<button type="button" aria-pressed=${name === kind} onClick=${() => choose(/** @type {Kind} */ (name))}>${title}</button>`)}</div>
    <p class="hint">${words.kindHints[kind]}</p><${Form} key=${kind} submit=${words.addMonitor} work=${work}>
    <${Field} label=${words.chain}><select name="chain">${chains.map(({ id, name }) => html`<option value=${id}>${name} (${id})</option>`)}</select><//>
    <${Fields} kind=${kind} abis=${abis.data?.data ?? []} />${kind === 'contract_log' && html`<${Failed} of=${abis} />`}
    <${Field} label=${words.eventType} hint=${words.eventTypeHint}><${Text} name="type" autocapitalize="none" /><//>
    <label class="check"><input name="paused" type="checkbox" />${words.startPaused}</label><//><${AsCommand} text=${`fieldbrook monitor ${COMMANDS[kind].replace('PROJECT', quoted(project))} --chain CHAIN`} /><//>`;
}
