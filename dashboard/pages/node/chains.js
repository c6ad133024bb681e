// @ts-check
/** The chains of the node with their endpoints, and the operators of the account. */
import { html, useState } from '../../vendor/preact.js';
import { post } from '../../core/api.js';
import { attempt, useLoad } from '../../core/load.js';
import { count } from '../../core/format.js';
import { amount } from '../../core/units.js';
import { isAdmin } from '../../core/session.js';
import { Ago, Badge, Card, Empty, Heading, Show, Table } from '../../parts/basics.js';
import { AsCommand } from '../../parts/code.js';
import { Confirm } from '../../parts/dialog.js';
import * as words from '../../words/en/chains.js';
import { Operators } from './chains/operators.js';

const EVERY_MS = 5000;
const COLUMNS = [words.endpointColumns.endpoint, words.endpointColumns.state, [words.endpointColumns.head, 'num'], [words.endpointColumns.failures, 'num']];

/** @param {{list: Api.EndpointReply[], newest: number}} p */
const Endpoints = ({ list, newest }) => html`<${Table} label=${words.endpoints} columns=${COLUMNS}>${list.map((one) => html`<tr key=${one.endpoint}><td class="mono">${one.endpoint}</td><td><${Badge} kind=${one.state === 'OK' ? 'good' : 'bad'}>${one.state === 'OK' ? words.states.OK : one.state}<//></td>
  <td class="num">${one.head ? count(one.head) : '–'} ${one.head && newest > one.head ? html`<span class="dim">${words.behind(newest - one.head)}</span>` : ''}</td><td class="num">${count(one.failures)}</td></tr>`)}<//>`;

/** @param {{chain: Api.ChainReply, park: (parked: boolean) => void}} p */
function Chain({ chain, park }) {
  const sent = chain.transactions;
  const facts = [
    [words.head, html`${count(chain.head)} ${chain.headAt && html`<span class="dim"><${Ago} at=${chain.headAt} /></span>`}`],
    [words.confirmations, chain.confirmations],
    [words.monitors, words.monitorCounts(chain.monitors)],
    [words.lag, words.blocks(chain.monitors.greatestLag)],
    [words.transactions, html`${words.transactionCounts(sent)} ${sent && sent.stuck > 0 && html`<${Badge} kind="bad">${words.stuck(sent.stuck)}<//>`} ${sent && sent.feesWei !== '0' && html`<span class="dim" title=${`${sent.feesWei} wei`}>${amount(sent.feesWei)}</span>`}`],
    [words.reorganisations, words.reorganised(chain.reorganisations, chain.deepestReorganisation)],
  ];
  const controls = html`${sent?.parked && html`<${Badge} kind="warn">${words.parked}<//>`}<${Badge} kind=${words.kinds[chain.state]}>${words.states[chain.state]}<//>
    ${isAdmin() && sent && html`<button type="button" class="small" onClick=${() => park(!sent.parked)}>${sent.parked ? words.resume : words.park}</button>`}`;
  return html`<${Card} title=${html`${chain.name} <span class="dim">${chain.chainID}</span>`} controls=${controls}>
    <dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${chain.lastError && html`<p class="pad error">${chain.lastError}</p>`}${chain.endpoints && html`<${Endpoints} list=${chain.endpoints} newest=${chain.head} />`}<//>`;
}

export function Page() {
  const chains = useLoad((get) => get('/chain'), [], EVERY_MS);
  const [parking, set] = useState(/** @type {Api.ChainReply | null} */ (null));
  const send = async (/** @type {Api.ChainReply} */ chain, /** @type {'park' | 'resume'} */ what, /** @type {string} */ done) => {
    await attempt(() => post(`/chain/${chain.chainID}/${what}`), done);
    chains.again();
  };
  const list = (/** @type {Api.ChainPage} */ { data }) => (data.length ? data.map((chain) => html`<${Chain} key=${chain.chainID} chain=${chain} park=${(/** @type {boolean} */ on) => (on ? set(chain) : send(chain, 'resume', words.resumedToast))} />`) : html`<${Card}><${Empty} title=${words.none} icon="chain">${words.noneHint} <a href="/docs/reference/chains/" target="_blank">${words.readChains}</a><//><//>`);
  return html`<div class="page"><${Heading} title=${words.title} text=${words.text} /><${Show} of=${chains}>${list}<//><${Operators} /><${AsCommand} text="fieldbrook chain list" />
    ${parking && html`<${Confirm} title=${words.park} text=${words.parkText} submit=${words.park} onClose=${() => set(null)} work=${() => send(parking, 'park', words.parkedToast)} />`}</div>`;
}
