// @ts-check
/** What an account may have and what it has. */
import { html } from '../../../vendor/preact.js';
import { count, size } from '../../../core/format.js';
import { Badge, Table } from '../../../parts/basics.js';
import * as words from '../../../words/en/accounts.js';

/** @param {string} name @param {number} value */
const shown = (name, value) => (name === 'bytes' ? size(value) : count(value));

/** @param {{row: any, edit?: (row: any) => void}} p */
function Quota({ row, edit }) {
  const share = row.unlimited || !row.limit ? 0 : Math.min(1, row.used / row.limit);
  const full = !row.unlimited && row.used >= row.limit;
  return html`<tr><td>${row.desc}</td><td class="num nowrap">${shown(row.name, row.used)}</td><td class="num nowrap">${row.unlimited ? words.unlimited : shown(row.name, row.limit)}</td>
    <td><span class=${`meter ${full ? 'bad' : ''}`}><i style=${{ width: `${share * 100}%` }}></i></span></td>
    ${edit && html`<td class="end">${row.from === 'ACCOUNT' && html`<${Badge} kind="info">${words.fromAccount}<//>`}<button type="button" class="ghost small" aria-label=${words.changeLimitOf(row.desc)} onClick=${() => edit(row)}>${words.change}</button></td>`}</tr>`;
}

/** @param {{list: any[], edit?: (row: any) => void}} p edit: for administrators */
export const Quotas = ({ list, edit }) => html`<${Table} label=${words.quotas} columns=${[words.quotaColumns.name, [words.quotaColumns.used, 'num'], [words.quotaColumns.limit, 'num'], [words.quotaColumns.share, 'hidden'], ...(edit ? [[words.change, 'hidden']] : [])]}>${list.map((row) => html`<${Quota} key=${row.name} row=${row} edit=${edit} />`)}<//>`;
