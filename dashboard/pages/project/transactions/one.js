// @ts-check
/** One transaction with all its signatures; sending it again, cancelling it. */
import { html, useState } from '../../../vendor/preact.js';
import { post, segment } from '../../../core/api.js';
import { useLoad } from '../../../core/load.js';
import { count, quoted } from '../../../core/format.js';
import { to } from '../../../core/route.js';
import { isAdmin } from '../../../core/session.js';
import { amount } from '../../../core/units.js';
import { Ago, Badge, Copy, Show, Table, say } from '../../../parts/basics.js';
import { AsCommand, Code } from '../../../parts/code.js';
import { Confirm, Dialog } from '../../../parts/dialog.js';
import * as words from '../../../words/en/transactions.js';

const EVERY_MS = 4000;
const COLUMNS = [words.attemptColumns.hash, [words.attemptColumns.max, 'num'], [words.attemptColumns.tip, 'num'], words.attemptColumns.signed, words.attemptColumns.why];

/** @param {{row: Api.TransactionReply}} p */
export const State = ({ row }) => html`<span class="line"><${Badge} kind=${row.stuck ? 'bad' : words.kinds[row.state]} title=${words.hints[row.state]}>${words.states[row.state] ?? row.state}<//>${row.stuck && html`<${Badge} kind="bad">${words.stuck}<//>`}</span>`;

/** @param {{name: string, row: Api.WholeTransaction, chain?: Api.ChainReply}} p */
function Facts({ name, row, chain }) {
  const deep = row.blockNumber != null && chain ? Math.max(0, chain.head - row.blockNumber + 1) : null;
  const long = (/** @type {string} */ text) => text && html`<span class="mono">${text}</span><${Copy} text=${text} />`;
  const facts = [
    [words.facts.hash, long(row.hash), 'whole'], [words.facts.from, long(row.from), 'whole'], [words.facts.to, row.to ? long(row.to) : words.create, 'whole'],
    [words.facts.value, html`<span title=${`${row.value} wei`}>${amount(row.value)}</span>`], [words.facts.nonce, row.nonce], [words.facts.operator, row.operatorName],
    [words.facts.event, row.eventID && html`<a class="mono" href=${to('projects', name, 'events', row.eventID)}>${row.eventID}</a>`], [words.facts.outcome, row.eventType && html`<${Badge}>${row.eventType}<//>`],
    [words.facts.block, row.blockNumber != null && count(row.blockNumber)], [words.facts.confirmations, chain && deep != null && words.confirmationsOf(Math.min(deep, 9999), chain.confirmations)],
    [words.facts.gas, words.gasOf(row.gasUsed, row.gas)], [words.facts.fee, row.feeWei && html`<span title=${`${row.feeWei} wei`}>${amount(row.feeWei)}</span>`],
    [words.facts.created, html`<${Ago} at=${row.createdAt} />`], [words.facts.sent, row.sentAt && html`<${Ago} at=${row.sentAt} />`],
  ].filter(([, value]) => value || value === 0);
  return html`<dl class="facts">${facts.map(([key, value, kind = '']) => html`<div class=${kind}><dt>${key}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** @param {{list: Api.AttemptReply[]}} p */
const Attempts = ({ list }) => html`<${Table} label=${words.attempts} columns=${COLUMNS}>${list.map((one) => html`<tr key=${one.hash}><td class="mono nowrap">${one.hash.slice(0, 10)}…<${Copy} text=${one.hash} /></td><td class="num">${amount(one.maxFeePerGas)}</td><td class="num">${amount(one.maxPriorityFeePerGas)}</td>
  <td class="dim nowrap"><${Ago} at=${one.signedAt} /></td><td>${one.cancels && html`<${Badge} kind="warn">${words.cancels}<//> `}<span class="dim">${one.why ?? ''}</span></td></tr>`)}<//>`;

/** @param {{name: string, id: string, onClose: () => void, again: () => void}} p */
export function TransactionPanel({ name, id, onClose, again }) {
  const path = /** @type {const} */ (`/tx/${segment(name)}/${segment(id)}`);
  const loaded = useLoad((get) => get(path), [name, id], EVERY_MS);
  const chain = useLoad((get) => get(`/chain/${id.split('-')[0]}`), [id], EVERY_MS);
  const [asked, ask] = useState(/** @type {'' | 'retry' | 'cancel'} */ (''));
  const command = (/** @type {'retry' | 'cancel'} */ what) => async () => {
    await post(`${path}/${what}`);
    say(what === 'retry' ? words.retried : words.cancelledToast);
    loaded.again();
    again();
  };
  const content = (/** @type {Api.WholeTransaction} */ row) => {
    const open = ['INIT', 'PENDING'].includes(row.state);
    return html`<div class="line"><${State} row=${row} /><span class="dim">${words.hints[row.state]}</span></div>
      ${row.reason && html`<p class="error">${words.reason}: ${row.reason}</p>`}
      ${open && (isAdmin() ? html`<div class="line"><button type="button" onClick=${() => ask('retry')}>${words.retry}</button><button type="button" class="danger" onClick=${() => ask('cancel')}>${words.cancel}</button></div>` : html`<p class="hint">${words.adminsOnly}</p>`)}
      <${Facts} name=${name} row=${row} chain=${chain.data} /><h3>${words.attempts}</h3><${Attempts} list=${row.attempts} />
      ${row.data !== '0x' && html`<h3>${words.data}</h3><${Code} label=${words.data} text=${row.data} plain />`}<${AsCommand} text=${`fieldbrook tx show ${quoted(name)} ${id}`} />`;
  };
  return html`<${Dialog} side title=${words.title(id)} onClose=${onClose}><${Show} of=${loaded}>${content}<//><//>
    ${asked && html`<${Confirm} title=${asked === 'retry' ? words.retry : words.cancel} text=${asked === 'retry' ? words.retryText : words.cancelText} submit=${asked === 'retry' ? words.retry : words.cancel} work=${command(asked)} onClose=${() => ask('')} />`}`;
}
