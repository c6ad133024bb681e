// @ts-check
/** The node's health: conditions with what to do, its processes, and the projects in them. */
import { html, useEffect, useRef, useState } from '../../vendor/preact.js';
import { get } from '../../core/api.js';
import { useLoad } from '../../core/load.js';
import { count, size } from '../../core/format.js';
import { to } from '../../core/route.js';
import { Ago, Badge, Card, Empty, Heading, Show, Table } from '../../parts/basics.js';
import { AsCommand } from '../../parts/code.js';
import { Troubles } from '../../parts/troubles.js';
import * as words from '../../words/en/health.js';

const RUNNING = [words.columns.project, words.columns.worker, [words.columns.memory, 'num'], [words.columns.busy, 'num'], [words.columns.restarts, 'num']];
const EVERY_MS = 4000;
const COLUMNS = [words.columns.part, words.columns.state, [words.columns.memory, 'num'], [words.columns.cpu, 'num'], [words.columns.restarts, 'num'], words.columns.started, [words.columns.pid, 'num']];

/** Shares of a core by key between the last two answers. @template T @param {T[]} list @param {(one: T) => [string | number, number]} pair @returns {Map<string | number, number>} */
function useShares(list, pair) {
  const before = useRef(/** @type {{at: number, spent: Map<string | number, number>}} */ ({ at: 0, spent: new Map() }));
  const [shares, set] = useState(/** @type {Map<string | number, number>} */ (new Map()));
  useEffect(() => {
    const now = { at: performance.now(), spent: new Map(list.map(pair)) };
    const { at, spent } = before.current;
    const took = (now.at - at) / 1000;
    if (at) set(new Map([...now.spent].filter(([key]) => spent.has(key)).map(([key, value]) => [key, Math.max(0, value - (spent.get(key) ?? 0)) / took])));
    before.current = now;
  }, [list]);
  return shares;
}

/** What a part is for, or which projects it runs. @param {Api.ProcessRow} one */
const purpose = (one) => one.project ? html`<a href=${to('projects', one.project)}>${one.project}</a>` : html`<span class="dim">${one.projects === undefined ? words.parts[one.part.split(':')[0]] : words.runs(one.projects)}</span>`;

/** @param {{list: Api.ProcessRow[]}} p */
function Processes({ list }) {
  const shares = useShares(list, (one) => [one.pid ?? 0, one.cpuSeconds ?? 0]);
  const row = (/** @type {Api.ProcessRow} */ one) => html`<tr key=${`${one.part}${one.pid}`}><td><span class="line"><strong>${one.part}</strong>${purpose(one)}</span></td>
    <td><${Badge} kind=${words.kinds[one.state] ?? 'warn'}>${one.state}<//></td><td class="num">${one.memoryBytes === undefined ? '–' : size(one.memoryBytes)}</td><td class="num">${one.pid && shares.has(one.pid) ? words.percent(shares.get(one.pid) ?? 0) : '–'}</td>
    <td class="num">${one.restarts ? html`<${Badge} kind="warn">${count(one.restarts)}<//>` : 0}</td><td class="dim"><${Ago} at=${one.startedAt} /></td><td class="num dim">${one.pid ?? '–'}</td></tr>`;
  return html`<${Table} label=${words.processes} columns=${COLUMNS}>${list.map(row)}<//>`;
}

/** @param {{list: Api.ProjectLoad[]}} p */
function Running({ list }) {
  const shares = useShares(list, (one) => [one.projectID, one.busySeconds]);
  const row = (/** @type {Api.ProjectLoad} */ one) => html`<tr key=${one.projectID}><td><a href=${to('projects', one.project)}>${one.project}</a></td><td class="dim">${one.worker ?? words.resting}</td>
    <td class="num">${size(one.memoryBytes)}</td><td class="num">${shares.has(one.projectID) ? words.percent(shares.get(one.projectID) ?? 0) : '–'}</td><td class="num">${one.restarts ? html`<${Badge} kind="warn">${count(one.restarts)}<//>` : 0}</td></tr>`;
  return html`<${Table} label=${words.running} columns=${RUNNING}>${list.map(row)}<//>`;
}

export function Page() {
  const health = useLoad((get) => get('/health'), [], EVERY_MS);
  const content = (/** @type {Api.HealthReply} */ { data, total, recent, processes, processesTotal, projects, running }) => html`
    <${Card} title=${words.now} controls=${html`<${Badge} kind=${total ? 'bad' : 'good'}>${total ? words.problems(total) : words.well}<//>`}>
      ${total ? html`<${Troubles} list=${data} />${total > data.length && html`<p class="pad hint">${words.more(total - data.length)}</p>`}` : html`<${Empty} title=${words.well} icon="heart">${words.wellHint}<//>`}<//>
    <${Card} title=${words.processes} controls=${html`<span class="hint">${words.some(processes.length, processesTotal) || (Object.keys(projects).length > 0 && `${words.projectsLabel}: ${words.projects(projects)}`)}</span>`}><${Processes} list=${processes} /><//>
    ${running.length > 0 && html`<${Card} title=${words.running} controls=${html`<span class="hint">${words.busyHint}</span>`}><${Running} list=${running} /><//>`}
    ${recent.length > 0 && html`<${Card} title=${words.lately}><${Troubles} list=${recent} /><//>`}`;
  return html`<div class="page"><${Heading} title=${words.title} text=${words.text} />
    <${Show} of=${health} rows=${6}>${content}<//><${AsCommand} text="fieldbrook health --recent --processes" /></div>`;
}
