// @ts-check
/** The node's settings: value, default, and where the value came from. */
import { html } from '../../vendor/preact.js';
import { useLoad } from '../../core/load.js';
import { quoted } from '../../core/format.js';
import { filter, query } from '../../core/route.js';
import { Badge, Card, Empty, Heading, Icon, Show, Table, typed } from '../../parts/basics.js';
import { AsCommand } from '../../parts/code.js';
import * as words from '../../words/en/node_settings.js';

const COLUMNS = [words.columns.name, words.columns.value, words.columns.standard, words.columns.from];

/** A value as text; secrets are told as `set`. @param {any} value */
const shown = (value) => (value == null || value === '' ? html`<span class="dim">${words.empty}</span>` : html`<span class="mono">${String(value)}</span>`);

/** @param {{row: any}} p */
const Row = ({ row }) => html`<tr><td><a class="mono" href=${`/docs/reference/settings/#${row.name}`} target="_blank" title=${words.aboutIt(row.name)}>${row.name}</a><small class="dim about">${row.description.replaceAll('`', '')}</small></td>
  <td class="wrap">${shown(row.value)}</td><td class="dim wrap">${shown(row.default)}</td><td><${Badge} kind=${row.source === 'default' ? '' : 'info'}>${words.sources[row.source] ?? row.source}<//></td></tr>`;

/** What the page shows, as a command. @param {string} name @param {string} changed */
const command = (name, changed) => ['fieldbrook settings', changed && '--changed', name && quoted(name)].filter(Boolean).join(' ');

export function Page() {
  const settings = useLoad((get) => get('/setting'), []);
  const { name = '', changed = '' } = query.value;
  const wanted = name.toLowerCase().split(' ').filter(Boolean);
  const fits = (/** @type {any} */ row) => (!changed || row.source !== 'default') && wanted.every((word) => `${row.name} ${row.value ?? ''} ${row.description}`.toLowerCase().includes(word));
  const list = (/** @type {any} */ { data }) => {
    const rows = data.filter(fits);
    return rows.length ? html`<${Table} label=${words.title} columns=${COLUMNS}>${rows.map((/** @type {any} */ row) => html`<${Row} key=${row.name} row=${row} />`)}<//>` : html`<${Empty} title=${words.none} icon="gear" />`;
  };
  return html`<div class="page"><${Heading} title=${words.title} text=${words.text}><a class="button" href="/docs/reference/settings/" target="_blank"><${Icon} name="book" />${words.howTo}</a><//>
    <${Card}><div class="filters"><input type="search" class="find" aria-label=${words.find} placeholder=${words.find} defaultValue=${name} onInput=${typed((v) => filter({ name: v }))} />
      <label class="check"><input type="checkbox" checked=${!!changed} onChange=${(/** @type {any} */ e) => filter({ changed: e.target.checked })} />${words.changedOnly}</label></div><${Show} of=${settings} rows=${8}>${list}<//><//><${AsCommand} text=${command(name, changed)} /></div>`;
}
