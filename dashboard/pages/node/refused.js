// @ts-check
/** Events that no project took. */
import { html } from '../../vendor/preact.js';
import { useLoad } from '../../core/load.js';
import { quoted, size } from '../../core/format.js';
import { filter, query } from '../../core/route.js';
import { Ago, Card, Empty, Heading, Show, Table } from '../../parts/basics.js';
import { AsCommand } from '../../parts/code.js';
import * as words from '../../words/en/refused.js';

const LIMIT = 500;
const COLUMNS = [words.columns.time, words.columns.project, words.columns.publisher, words.columns.type, words.columns.error, words.columns.source, words.columns.id, [words.columns.size, 'num']];

/** @param {{row: Api.RefusedEvent}} p */
const Row = ({ row }) => html`<tr><td class="dim nowrap"><${Ago} at=${row.refusedAt} /></td><td>${row.project || '–'}</td><td class="nowrap">${row.publisher || '–'}</td><td>${row.eventType || '–'}</td>
  <td class="wrap"><a href=${`/docs/reference/errors/#${row.error}`} target="_blank" title=${words.whatIt}>${row.error}</a> <span class="dim">${row.reason}</span></td><td class="dim">${row.source}</td><td class="mono dim nowrap">${row.eventID || '–'}</td><td class="num">${size(row.size)}</td></tr>`;

export function Page() {
  const { project = '', id = '', error = '' } = query.value;
  const refused = useLoad((get) => get('/refused_event', { project, eventID: id, limit: LIMIT }), [project, id], 5000);
  const change = (/** @type {string} */ name) => (/** @type {any} */ event) => filter({ [name]: event.target.value });
  const list = (/** @type {Api.RefusedEvents} */ { data, more }) => {
    const counts = Object.entries(Object.groupBy(data, (row) => row.error)).map(([key, rows]) => [key, rows?.length ?? 0]);
    const rows = data.filter((row) => !error || row.error === error);
    return html`<div class="filters"><input type="search" aria-label=${words.project} placeholder=${words.project} defaultValue=${project} onChange=${change('project')} /><input type="search" aria-label=${words.id} placeholder=${words.id} defaultValue=${id} onChange=${change('id')} />
        <select aria-label=${words.reason} value=${error} onChange=${change('error')}><option value="">${words.all}</option>${counts.map(([key, n]) => html`<option value=${key}>${key} (${n})</option>`)}</select></div>
      ${rows.length ? html`<${Table} label=${words.title} columns=${COLUMNS}>${rows.map((row) => html`<${Row} key=${row.eventID + row.refusedAt + row.sha256} row=${row} />`)}<//>` : html`<${Empty} title=${words.none} icon="ban">${words.noneHint}<//>`}
      ${more > 0 && html`<p class="pad hint">${words.more(more)}</p>`}`;
  };
  return html`<div class="page"><${Heading} title=${words.title} text=${words.text} /><${Card}><${Show} of=${refused} rows=${6}>${list}<//><//>
    <${AsCommand} text=${['fieldbrook refused', id && quoted(id), project && `--project ${quoted(project)}`].filter(Boolean).join(' ')} /></div>`;
}
