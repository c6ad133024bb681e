// @ts-check
/** Monitors of chains: logs, transactions and heights that become events. */
import { html, useState } from '../../../vendor/preact.js';
import { put, remove, segment } from '../../../core/api.js';
import { attempt, useLoad } from '../../../core/load.js';
import { NONE, count } from '../../../core/format.js';
import { to } from '../../../core/route.js';
import { short } from '../../../core/units.js';
import { Badge, Card, Do, Empty, Mark, Show, Table, say } from '../../../parts/basics.js';
import { Confirm } from '../../../parts/dialog.js';
import { AddMonitor } from './add_monitor.js';
import { Rewind } from './rewind.js';
import * as words from '../../../words/en/triggers.js';
import { actions, remove as removeWord } from '../../../words/en/common.js';

const EVERY_MS = 5000;

/** @typedef {keyof typeof words.kinds} Kind */

/** @typedef {Partial<Api.ContractLogReply & Api.ChainTxReply & Api.ChainHeightReply> & Pick<Api.ContractLogReply, keyof Api.ChainTxReply & keyof Api.ContractLogReply> & {kind: Kind, id: string}} Monitor */

/** The routes of one kind of monitor. @param {string} project @param {Kind} kind */
export const pathOf = (project, kind) => /** @type {const} */ (`/monitor/x/${segment(project)}/${kind}`);

/** All monitors of a project, each with its `kind` and `id`. @param {string} project @param {Get} get */
async function load(project, get) {
  const kinds = /** @type {Kind[]} */ (Object.keys(words.kinds));
  const lists = await Promise.all(kinds.map((kind) => get(`${pathOf(project, kind)}/datalist`, { size: 1000 })));
  return lists.flatMap(({ data }, i) => data.map((one) => ({ ...one, kind: kinds[i], id: 'contractlogID' in one ? one.contractlogID : 'chaintxID' in one ? one.chaintxID : one.chainHeightID })));
}

/** What a monitor looks for, in few characters. @param {Monitor} one */
export const whatOf = (one) => (one.kind === 'contract_log' ? short(one.contractAddress) : one.kind === 'chain_tx' ? short(one.txAddress) : words.block(String(one.height)));

/** @param {{one: Monitor}} p */
function State({ one }) {
  const [text, kind] = words.states[/** @type {keyof typeof words.states} */ (one.state)] ?? [one.state, ''];
  return html`<${Badge} kind=${/** @type {any} */ (kind)} title=${one.lastError}>${text}<//>`;
}

/** @param {{one: Monitor, project: string, chains: Api.ChainName[], act: (what: string, one: Monitor) => void}} p */
function Row({ one, project, chains, act }) {
  const what = whatOf(one);
  const logs = one.kind === 'contract_log';
  const stops = one.finished || one.state === 'NO_CHAIN';
  return html`<tr><td>${words.kinds[/** @type {Kind} */ (one.kind)]}</td><td>${chains.find(({ id }) => id === one.chainID)?.name ?? one.chainID}</td>
    <td><span class="mono" title=${one.contractAddress ?? one.txAddress}>${what}</span>${one.event && html`<br /><small class="dim">${one.event}</small>`}</td>
    <td><a href=${`${to('projects', project, 'events')}?type=${segment(one.eventType)}`}>${one.eventType}</a></td><td><${State} one=${one} /></td>
    <td class="num">${logs ? one.blockCurrent : NONE}</td><td class="num">${logs && one.lag != null ? count(one.lag) : NONE}</td><td class="num">${one.events == null ? NONE : count(one.events)}</td>
    <td class="end"><span class="row-actions">${!stops && html`<${Mark} icon=${one.paused ? 'play' : 'pause'} label=${one.paused ? words.startOf(what) : words.pauseOf(what)} title=${one.paused ? words.start : words.pause} onClick=${() => act('toggle', one)} />`}
      ${logs && html`<${Mark} icon="back" label=${words.rewindOf(what)} title=${words.rewind} onClick=${() => act('rewind', one)} />`}
      <${Mark} icon="trash" label=${words.deleteOf(what)} title=${removeWord} onClick=${() => act('delete', one)} /></span></td></tr>`;
}

/** @param {{list: Monitor[], project: string, chains: Api.ChainName[], act: (what: string, one: Monitor) => void}} p */
const List = ({ list, project, chains, act }) => {
  const { kind, chain, what, type, state, at, lag, events } = words.monitorColumns;
  return html`<${Table} label=${words.monitors} columns=${[kind, chain, what, type, state, [at, 'num'], [lag, 'num'], [events, 'num'], [actions, 'hidden']]}>${list.map((one) => html`<${Row} key=${one.id} one=${one} project=${project} chains=${chains} act=${act} />`)}<//>`;
};

/** @param {{project: string, chains: Api.ChainName[]}} p chains: those of the node, `{id, name}` */
export function Monitors({ project, chains }) {
  const [dialog, show] = useState(/** @type {{what: string, one?: Monitor} | null} */ (null));
  const loaded = useLoad((get) => load(project, get), [project], EVERY_MS);
  const close = () => show(null);
  const one = dialog?.one;
  const act = (/** @type {string} */ what, /** @type {Monitor} */ which) => {
    if (what !== 'toggle') return show({ what, one: which });
    return attempt(async () => {
      await put(`${pathOf(project, which.kind)}/${which.paused ? 'START' : 'PAUSE'}`, { ids: [which.id] });
      loaded.again();
    });
  };
  const drop = async (/** @type {Monitor} */ gone) => {
    await remove(`${pathOf(project, gone.kind)}/${gone.id}`);
    say(words.monitorDeleted);
    loaded.again();
  };
  const add = chains.length > 0 && html`<${Do} icon="plus" onClick=${() => show({ what: 'add' })}>${words.addMonitor}<//>`;
  const none = html`<${Empty} title=${words.monitorsNone} icon="chain">${words.monitorsNoneHint}${!chains.length && html`<p>${words.noChains} <a href="/docs/reference/chains/" target="_blank">${words.chainsHelp}</a></p>`}<//>`;
  return html`<${Card} title=${words.monitors} controls=${add}><${Show} of=${loaded} rows=${2}>${(/** @type {Monitor[]} */ list) => (list.length ? html`<${List} list=${list} project=${project} chains=${chains} act=${act} />` : none)}<//>
    ${dialog?.what === 'add' && html`<${AddMonitor} project=${project} chains=${chains} onClose=${close} onDone=${loaded.again} />`}
    ${dialog?.what === 'rewind' && html`<${Rewind} project=${project} monitor=${one} onClose=${close} onDone=${loaded.again} />`}
    ${one && dialog?.what === 'delete' && html`<${Confirm} title=${words.deleteMonitor(whatOf(one))} text=${words.deleteMonitorText} submit=${removeWord} onClose=${close} work=${() => drop(one)} />`}<//>`;
}
