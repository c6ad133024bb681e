// @ts-check
/** The log lines of a project's applets: live and from the log. */
import { html, useMemo } from '../../vendor/preact.js';
import { get, segment } from '../../core/api.js';
import { attempt } from '../../core/load.js';
import { clock, levelKind, moment, quoted } from '../../core/format.js';
import { filter, query, to } from '../../core/route.js';
import { Badge, Card, Empty, Problem, Waiting, typed, typedSlowly } from '../../parts/basics.js';
import { AsCommand } from '../../parts/code.js';
import { Counts, Newer, PauseButton, useTail } from '../../parts/live.js';
import { Rows } from '../../parts/rows.js';
import * as words from '../../words/en/logs.js';
import { older as loadOlder } from '../../words/en/live.js';

const OPENED_WITH = 200;
const LEVELS = ['debug', 'info', 'warning', 'error'];

/** @param {{row: any, index: number, project: string}} p */
const Row = ({ row, index, project }) => html`<div role="row" aria-rowindex=${index + 2} class="row"><span role="cell" class="mono dim" title=${moment(row.logTime)}>${row.eventID ? html`<a href=${to('projects', project, 'events', row.eventID)} aria-label=${words.toEvent(clock(row.logTime))}>${clock(row.logTime)}</a>` : clock(row.logTime)}</span>
  <span role="cell"><${Badge} kind=${levelKind(row.level)}>${row.level}<//></span><span role="cell" class="dim">${row.appletName}</span><span role="cell" class="mono" title=${row.msg}>${row.msg}</span></div>`;

/** @param {{applets: Api.AppletReply[]}} p */
const Filters = ({ applets }) => html`<select aria-label=${words.level} value=${query.value.level ?? ''} onChange=${typed((v) => filter({ level: v }))}><option value="">${words.allLevels}</option>${LEVELS.map((level) => html`<option>${level}</option>`)}</select>
    <select aria-label=${words.applet} value=${query.value.instance ?? ''} onChange=${typed((v) => filter({ instance: v }))}><option value="">${words.allApplets}</option>${applets.filter((one) => one.instance).map((one) => html`<option value=${one.instance?.instanceID}>${one.name}</option>`)}</select>
    <input type="search" placeholder=${words.contains} aria-label=${words.contains} defaultValue=${query.value.contains ?? ''} onInput=${typedSlowly((text) => filter({ contains: text }))} />`;

/** @param {Project} p */
export function Page({ name, applets }) {
  const { level = '', instance = '', contains = '', event = '' } = query.value;
  const wanted = useMemo(() => ({ level, instanceID: instance, contains, eventID: event }), [level, instance, contains, event]);
  const live = useTail({
    topic: 'logs', project: name, filter: wanted, key: (row) => row.sequence, live: true,
    load: (before, signal) => load(name, wanted, before, signal),
  });
  const rows = live.tail.shown;
  const some = Object.values(wanted).some(Boolean);
  return html`<${Card} kind="live" controls=${html`<div class="line controls"><${PauseButton} live=${live} /><${Filters} applets=${applets} /></div>`}>
      <div class="line status"><${Counts} live=${live} /></div>
      <${Rows} kind="log-rows" label=${words.label} columns=${words.columns} rows=${rows} height=${30} onTop=${live.onTop} onHold=${live.hold} row=${(/** @type {Api.LogLine} */ row, /** @type {number} */ index) => html`<${Row} key=${row.sequence} row=${row} index=${index} project=${name} />`} />
      <${Newer} live=${live} />
      ${!rows.length && html`<div class="over">${live.error ? html`<${Problem} error=${live.error} again=${live.again} />` : !live.loaded ? html`<${Waiting} />` : html`<${Empty} title=${some ? words.noneFound : words.none} icon="list">${!some && words.noneHint}<//>`}</div>`}
      ${rows.length > 0 && live.next && html`<div class="pad"><button type="button" onClick=${() => attempt(live.older)}>${loadOlder}</button></div>`}<//>
    <${AsCommand} text=${`fieldbrook logs ${quoted(name)} --follow`} />`;
}

/** The newest rows, or those before one; the newest first. @param {string} project @param {Record<string, string>} wanted @param {string} before @param {AbortSignal} [signal] */
async function load(project, wanted, before, signal) {
  const { data, next, newest } = await get(`/applet_log/${segment(project)}`, { ...wanted, before: before || String(Number.MAX_SAFE_INTEGER), limit: OPENED_WITH }, { signal });
  const rows = data.toSorted((a, b) => Number(b.sequence) - Number(a.sequence));
  return { data: rows, next, newest };
}
