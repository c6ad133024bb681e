// @ts-check
/** The SQL tables of a project: rows, a query, and the schema. */
import { html, useState } from '../../vendor/preact.js';
import { post, segment } from '../../core/api.js';
import { attempt, useLoad } from '../../core/load.js';
import { count, duration, quoted } from '../../core/format.js';
import { filter, query } from '../../core/route.js';
import { Badge, Card, Do, Empty, Show, say, typed } from '../../parts/basics.js';
import { AsCommand } from '../../parts/code.js';
import { Dialog } from '../../parts/dialog.js';
import { Field, Form } from '../../parts/form.js';
import * as words from '../../words/en/data.js';

const PAGE = 100;
const EXAMPLE = 'SELECT * FROM ';

/** A value of a row. @param {{value: any}} p */
const Cell = ({ value }) => html`<td class=${`mono cut ${typeof value === 'number' ? 'num' : ''}`} title=${value == null ? '' : String(value)}>${value == null ? html`<span class="dim">${words.nothing}</span>` : String(value)}</td>`;

/** @param {{columns: string[], rows: any[][], heading?: (name: string) => any, label: string}} p */
const Grid = ({ columns, rows, heading, label }) => html`<div class="scroll-x" tabindex="0" role="region" aria-label=${label}><table class="list" aria-label=${label}><thead><tr>${columns.map((name) => html`<th scope="col" aria-sort=${heading ? sortOf(name) : undefined}>${heading ? heading(name) : name}</th>`)}</tr></thead>
  <tbody>${rows.map((row) => html`<tr>${row.map((value) => html`<${Cell} value=${value} />`)}</tr>`)}</tbody></table></div>`;

/** @param {string} name */
const sortOf = (name) => (query.value.order !== name ? 'none' : query.value.desc ? 'descending' : 'ascending');

/** The rows of one table, sorted and in pages. @param {{project: string, table: any}} p */
function Rows({ project, table }) {
  const { order = '', desc = '', column = '', equals = '' } = query.value;
  const offset = Number(query.value.offset ?? 0);
  const loaded = useLoad((get) => get(`/sql/${segment(project)}/${segment(table.name)}`, { order, desc: desc && 'true', offset, limit: PAGE, filter: column && equals ? `${column}=${equals}` : '' }), [project, table.name, order, desc, offset, column, equals]);
  const sort = (/** @type {string} */ name) => filter({ order: order === name && desc ? '' : name, desc: order === name && !desc, offset: '' });
  const heading = (/** @type {string} */ name) => html`<button type="button" class="link" aria-label=${words.sortBy(name)} onClick=${() => sort(name)}>${name}${order === name ? html` <span aria-hidden="true">${desc ? '↓' : '↑'}</span>` : ''}</button>`;
  return html`<div class="bar"><select aria-label=${words.filterColumn} value=${column} onChange=${typed((v) => filter({ column: v, offset: '' }))}><option value="">${words.anyColumn}</option>${table.columns.map((/** @type {Api.ColumnReply} */ one) => html`<option>${one.name}</option>`)}</select>
      <input aria-label=${words.filterValue} placeholder=${words.filterValue} disabled=${!column} defaultValue=${equals} onChange=${typed((v) => filter({ equals: v, offset: '' }))} /></div>
    <${Show} of=${loaded}>${(/** @type {any} */ { columns, data, more }) => html`${data.length ? html`<${Grid} columns=${columns} rows=${data} heading=${heading} label=${words.rowsOf(table.name)} />` : html`<${Empty} title=${words.noRows} />`}
      ${(offset > 0 || more) && html`<div class="pad line"><button type="button" disabled=${!offset} onClick=${() => filter({ offset: Math.max(0, offset - PAGE) || '' })}>${words.previous}</button><span class="dim">${words.range(offset + 1, offset + data.length)}</span><button type="button" disabled=${!more} onClick=${() => filter({ offset: offset + PAGE })}>${words.next}</button></div>`}`}<//>`;
}

/** One SELECT. @param {{project: string, table: string, onClose: () => void}} p */
function Query({ project, table, onClose }) {
  const [answer, set] = useState(/** @type {any} */ (null));
  const [statement, type] = useState(EXAMPLE + table);
  const run = () => attempt(async () => set(await post(`/sql/${segment(project)}/query`, { statement, args: [] })));
  const key = (/** @type {KeyboardEvent} */ event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === 'Enter') run();
  };
  return html`<${Dialog} title=${words.query} onClose=${onClose} kind="large"><${Field} label=${words.query} hint=${words.queryHint}><textarea rows="5" spellcheck=${false} defaultValue=${statement} onInput=${typed(type)} onKeyDown=${key}></textarea><//>
    <div class="line"><${Do} icon="play" class="primary" onClick=${run}>${words.run}<//>${answer && html`<span class="dim">${words.answered(count(answer.data.length), duration(answer.ms))}</span>`}</div>
    ${answer && (answer.data.length ? html`<${Grid} columns=${answer.columns} rows=${answer.data} label=${words.query} />` : html`<${Empty} title=${words.noRows} />`)}
    <${AsCommand} text=${`fieldbrook sql query ${quoted(project)} ${quoted(statement)}`} /><//>`;
}

/** The schema as JSON. @param {{project: string, onClose: () => void, again: () => void}} p */
function Schema({ project, onClose, again }) {
  const loaded = useLoad((get) => get(`/project_config/x/${segment(project)}/PROJECT_DATABASE`), [project]);
  const save = async (/** @type {Values} */ { schema }) => {
    await post(`/project_config/x/${segment(project)}/PROJECT_DATABASE`, JSON.parse(schema));
    say(words.schemaSaved);
    again();
    onClose();
  };
  return html`<${Dialog} title=${words.schema} onClose=${onClose} kind="large"><${Show} of=${loaded}>${(/** @type {any} */ config) => html`<${Form} submit=${words.save} work=${save}><${Field} label=${words.schema} hint=${words.schemaHint}><textarea name="schema" rows="18" spellcheck=${false} defaultValue=${JSON.stringify(config, null, 2)}></textarea><//><//>`}<//><//>`;
}

/** @param {{project: string}} p */
export function Tables({ project }) {
  const loaded = useLoad((get) => get(`/sql/${segment(project)}`), [project]);
  const [open, show] = useState('');
  const list = loaded.data?.data ?? [];
  const chosen = list.find((one) => one.name === query.value.table) ?? list[0];
  const choose = (/** @type {string} */ name) => filter({ table: name, order: '', desc: '', offset: '', column: '', equals: '' });
  return html`<${Card} title=${words.tables} controls=${html`${chosen && html`<${Do} icon="terminal" onClick=${() => show('query')}>${words.query}<//>`}<${Do} icon="edit" onClick=${() => show('schema')}>${words.editSchema}<//>`}>
    <${Show} of=${loaded}>${() => (chosen ? html`<div class="pad line">${list.map((one) => html`<button type="button" aria-pressed=${one === chosen} onClick=${() => choose(one.name)}>${one.name} <${Badge}>${one.rows == null ? '…' : count(one.rows) + (one.more ? '+' : '')}<//></button>`)}</div><${Rows} key=${chosen.name} project=${project} table=${chosen} />`
      : html`<${Empty} title=${words.noTables} icon="list"><p>${words.noTablesHint}</p><//>`)}<//><//>
    ${open === 'query' && html`<${Query} project=${project} table=${chosen.name} onClose=${() => show('')} />`}${open === 'schema' && html`<${Schema} project=${project} onClose=${() => show('')} again=${loaded.again} />`}`;
}
