// @ts-check
/** The audit log: who changed what. */
import { html, useEffect, useState } from '../../vendor/preact.js';
import { get } from '../../core/api.js';
import { attempt, useLoad } from '../../core/load.js';
import { moment, quoted, utc } from '../../core/format.js';
import { filter, query } from '../../core/route.js';
import { Badge, Card, Empty, Heading, Show, Table } from '../../parts/basics.js';
import { AsCommand } from '../../parts/code.js';
import * as words from '../../words/en/audit.js';
import { more } from '../../words/en/common.js';

const PAGE = 100;
const NAMES = ['account', 'operation', 'path', 'outcome', 'begin', 'end'];
const COLUMNS = [words.columns.time, words.columns.account, words.columns.operation, words.columns.path, words.columns.status, words.columns.from];

/** The filters of the address as the route takes them. @param {Record<string, string>} given */
function wanted(given) {
  const found = Object.fromEntries(NAMES.map((name) => [name, given[name] ?? '']));
  for (const name of ['begin', 'end']) if (found[name]) found[name] = new Date(found[name]).toISOString();
  return found;
}

/** @param {Record<string, string>} filters */
const command = ({ account, operation, path, outcome, begin, end }) => ['fieldbrook audit', account && `--account ${quoted(account)}`, operation && `--operation ${quoted(operation)}`, path && `--path ${quoted(path)}`, begin && `--since ${begin}`, end && `--until ${end}`, outcome === 'REFUSED' && '--refused'].filter(Boolean).join(' ');

/** @param {{row: Api.AuditRowReply}} p */
const Row = ({ row }) => html`<tr><td class="dim nowrap"><time dateTime=${row.time} title=${utc(row.time)}>${moment(row.time)}</time></td>
  <td><button type="button" class="link" onClick=${() => filter({ account: row.account })}>${row.account || words.unknown}</button>${row.accessKey && html` <${Badge}>${words.byKey(row.accessKey)}<//>`}</td>
  <td><button type="button" class="link" onClick=${() => filter({ operation: row.operation })}>${row.operation}</button></td><td class="mono wrap">${row.method} ${row.path}</td>
  <td><${Badge} kind=${row.status >= 400 ? 'bad' : 'good'} title=${row.error}>${row.status}<//>${row.error && html` <span class="dim">${row.error}</span>`}</td><td class="dim mono">${row.from}</td></tr>`;

/** @param {{given: Record<string, string>}} p */
function Filters({ given }) {
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => filter({ [name]: event.target.value });
  const text = (/** @type {string} */ name, /** @type {string} */ label, hint = label) => html`<input type="search" key=${name + (given[name] ? '' : '-')} aria-label=${label} placeholder=${hint} defaultValue=${given[name] ?? ''} onChange=${set(name)} />`;
  const time = (/** @type {string} */ name, /** @type {string} */ label) => html`<label class="line time"><span class="dim">${label}</span><input type="datetime-local" key=${name + (given[name] ? '' : '-')} defaultValue=${given[name] ?? ''} onChange=${set(name)} /></label>`;
  return html`<div class="filters">${text('account', words.account)}${text('operation', words.operation, words.operationHint)}${text('path', words.path)}
    <select aria-label=${words.outcome} value=${given.outcome ?? ''} onChange=${set('outcome')}>${Object.entries(words.outcomes).map(([value, label]) => html`<option value=${value}>${label}</option>`)}</select>
    ${time('begin', words.begin)}${time('end', words.end)}
    ${NAMES.some((name) => given[name]) && html`<button type="button" class="ghost" onClick=${() => filter(Object.fromEntries(NAMES.map((name) => [name, ''])))}>${words.clear}</button>`}</div>`;
}

export function Page() {
  const filters = wanted(query.value);
  const key = JSON.stringify(filters);
  const first = useLoad((get) => get('/audit', { ...filters, limit: PAGE }), [key]);
  const [older, set] = useState(/** @type {{rows: any[], next?: string} | null} */ (null));
  useEffect(() => set(null), [key, first.data]);
  const next = older ? older.next : first.data?.next;
  const load = () => attempt(async () => {
    const page = await get('/audit', { ...filters, limit: PAGE, before: next });
    set({ rows: [...(older?.rows ?? []), ...page.data], next: page.next });
  });
  const list = (/** @type {Api.AuditPage} */ { data }) => {
    const rows = [...data, ...(older?.rows ?? [])];
    if (!rows.length && !next) return html`<${Empty} title=${words.none} icon="shield">${words.noneHint}<//>`;
    return html`<${Table} label=${words.title} columns=${COLUMNS}>${rows.map((row) => html`<${Row} key=${row.sequence} row=${row} />`)}<//>
      ${next && html`<div class="pad"><button type="button" onClick=${load}>${more}</button></div>`}`;
  };
  return html`<div class="page"><${Heading} title=${words.title} text=${words.text} /><${Card}><${Filters} given=${query.value} /><${Show} of=${first} rows=${8}>${list}<//><//><${AsCommand} text=${command(filters)} /></div>`;
}
