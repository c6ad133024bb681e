// @ts-check
/** The transactions of a project. */
import { html } from '../../vendor/preact.js';
import { useLoad } from '../../core/load.js';
import { count, quoted } from '../../core/format.js';
import { filter, query, to } from '../../core/route.js';
import { amount, short } from '../../core/units.js';
import { Ago, Card, Empty, Failed, Show, Table } from '../../parts/basics.js';
import { AsCommand } from '../../parts/code.js';
import * as words from '../../words/en/transactions.js';
import { more } from '../../words/en/common.js';
import { State, TransactionPanel } from './transactions/one.js';
import { Spending } from './transactions/spending.js';

const PAGE = 100;
const EVERY_MS = 4000;
const COLUMNS = [words.columns.state, words.columns.hash, words.chain, words.columns.to, [words.columns.value, 'num'], [words.columns.nonce, 'num'], [words.columns.fees, 'num'], [words.columns.confirmations, 'num'], words.columns.event, words.columns.created];

/** What `find` names: a hash, a sender, a transaction, or else an event. @param {string} text @returns {Record<string, string>} */
function wanted(text) {
  const found = text.trim();
  if (/^(0x)?[0-9a-fA-F]{64}$/.test(found)) return { hash: found };
  if (/^(0x)?[0-9a-fA-F]{40}$/.test(found)) return { from: found };
  return found ? { eventID: found } : {};
}

/** @typedef {Api.TransactionReply} Transaction */
/** @typedef {Map<number, Api.ChainReply>} Chains */

/** @param {Transaction} row @param {Api.ChainReply | undefined} chain */
const depth = (row, chain) => (row.blockNumber == null || !chain ? '–' : words.confirmationsOf(Math.max(0, Math.min(chain.head - row.blockNumber + 1, chain.confirmations || 1)), chain.confirmations || 1));

/** @param {{name: string, row: Transaction, chains: Chains}} p */
const Row = ({ name, row, chains }) => html`<tr><td><${State} row=${row} /></td><td><button type="button" class="link mono" title=${row.hash} onClick=${() => filter({ tx: row.transactionID })}>${short(row.hash) || row.transactionID}</button></td><td>${chains.get(row.chainID)?.name ?? row.chainID}</td>
  <td class="mono dim" title=${row.to}>${row.to ? short(row.to) : words.create}</td><td class="num" title=${`${row.value} wei`}>${amount(row.value)}</td><td class="num">${count(row.nonce)}</td><td class="num" title=${row.feeWei && `${row.feeWei} wei`}>${amount(row.feeWei)}</td><td class="num">${depth(row, chains.get(row.chainID))}</td>
  <td>${row.eventID && html`<a class="mono" href=${to('projects', name, 'events', row.eventID)}>${short(row.eventID)}</a>`}</td><td class="dim"><${Ago} at=${row.createdAt} /></td></tr>`;

/** @param {{given: Record<string, string>, chains: Chains}} p */
function Filters({ given, chains }) {
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) => filter({ [name]: event.target.type === 'checkbox' ? event.target.checked : event.target.value, before: '' });
  const any = ['state', 'chain', 'stuck', 'find', 'before'].some((name) => given[name]);
  return html`<div class="filters"><input type="search" key=${given.find ? '' : '-'} class="find" aria-label=${words.find} placeholder=${words.find} defaultValue=${given.find ?? ''} spellcheck=${false} onChange=${change('find')} />
    <select aria-label=${words.state} value=${given.state ?? ''} onChange=${change('state')}><option value="">${words.allStates}</option>${Object.entries(words.states).map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>
    ${chains.size > 1 && html`<select aria-label=${words.chain} value=${given.chain ?? ''} onChange=${change('chain')}><option value="">${words.allChains}</option>${[...chains].map(([id, one]) => html`<option value=${id}>${one.name}</option>`)}</select>`}
    <label class="check"><input type="checkbox" checked=${!!given.stuck} onChange=${change('stuck')} />${words.onlyStuck}</label>
    ${any && html`<button type="button" class="ghost" onClick=${() => filter({ state: '', chain: '', stuck: '', find: '', before: '' })}>${words.clear}</button>`}</div>`;
}

/** @param {string} name @param {Record<string, string>} given */
const command = (name, given) => ['fieldbrook tx list', quoted(name), given.state && `--state ${given.state.toLowerCase()}`, given.chain && `--chain ${given.chain}`, given.stuck && '--stuck', ...Object.entries(wanted(given.find ?? '')).map(([key, text]) => `--${{ hash: 'hash', from: 'from', eventID: 'event' }[key]} ${quoted(text)}`)].filter(Boolean).join(' ');

/** @param {Project} project */
export function Page({ name }) {
  const { state = '', chain = '', stuck = '', find = '', before = '', tx = '' } = query.value;
  const path = /** @type {const} */ (`/tx/${encodeURIComponent(name)}`);
  const isNumber = /^\d+-\d+$/.test(find.trim());
  const load = async (/** @type {Get} */ get) => (isNumber ? { data: [await get(`${path}/${find.trim()}`)], next: '' } : get(path, { state, chainID: chain, stuck: stuck === '1', limit: PAGE, before, ...wanted(find) }));
  const rows = useLoad(load, [name, state, chain, stuck, find, before], EVERY_MS);
  const sums = useLoad((get) => get(`${path}/state`), [name], EVERY_MS);
  const known = useLoad((get) => get('/chain'), [], EVERY_MS);
  const chains = new Map((known.data?.data ?? []).map((one) => [one.chainID, one]));
  const filtered = state || chain || stuck || find || before;
  const again = () => {
    rows.again();
    sums.again();
  };
  const list = (/** @type {{data: Transaction[], next: string}} */ { data, next }) => (data.length ? html`<${Table} label=${words.label} columns=${COLUMNS}>${data.map((row) => html`<${Row} key=${row.transactionID} name=${name} row=${row} chains=${chains} />`)}<//>
      ${(next || before) && html`<div class="pad line">${before && html`<button type="button" onClick=${() => filter({ before: '' })}>${words.seeNewer}</button>`}${next && html`<button type="button" onClick=${() => filter({ before: next })}>${more}</button>`}</div>`}`
    : filtered ? html`<${Empty} title=${words.noneFound} icon="chain" />` : html`<${Empty} title=${words.none} icon="chain">${words.noneHint} <a href="/docs/reference/transactions/" target="_blank">${words.howTo}</a><//>`);
  return html`<div class="stack"><${Failed} of=${sums} />${sums.data && (sums.data.data.length > 0 || sums.data.weiPerDay != null) && html`<${Spending} name=${name} state=${sums.data} chains=${chains} again=${again} />`}
    <${Card}><${Filters} given=${query.value} chains=${chains} /><${Show} of=${rows} rows=${6}>${list}<//><//><${AsCommand} text=${command(name, query.value)} />
    ${tx && html`<${TransactionPanel} key=${tx} name=${name} id=${tx} again=${again} onClose=${() => filter({ tx: '' })} />`}</div>`;
}
