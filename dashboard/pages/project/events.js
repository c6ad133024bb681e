// @ts-check
/** The events of a project: live, from the history, and one in detail. */
import { html, useEffect, useMemo } from '../../vendor/preact.js';
import { get, segment } from '../../core/api.js';
import { attempt } from '../../core/load.js';
import { clock, duration, moment, size } from '../../core/format.js';
import { filter, query, to } from '../../core/route.js';
import { Badge, Card, Empty, Problem, typed, Waiting } from '../../parts/basics.js';
import { Menu } from '../../parts/menu.js';
import { Counts, Newer, PauseButton, useTail } from '../../parts/live.js';
import { Rows } from '../../parts/rows.js';
import { StoryPage, StoryPanel } from './story.js';
import * as words from '../../words/en/events.js';
import { keptSince, older as loadOlder } from '../../words/en/live.js';

const OPENED_WITH = 200;
const FILTERS = ['type', 'publisher', 'outcome', 'source'];

/** @typedef {Api.EventRow} EventRow */

/** How an event ended, for the list. @param {EventRow} row @returns {['' | 'bad' | 'warn', string]} */
function outcomeOf(row) {
  const bad = row.results.find((r) => r.code < 0);
  if (row.outcome === 'failed') return ['bad', row.error || bad?.errMsg.split(':')[0] || `${words.returned} ${bad?.code}`];
  if (row.outcome === 'duplicate') return ['', words.duplicate];
  return row.outcome === 'unhandled' ? ['warn', words.noHandler] : ['', words.ok];
}

/** Milliseconds from receiving to the commit. @param {EventRow} row */
const took = (row) => Date.parse(row.handledAt) - Date.parse(row.receivedAt);

/** @param {{name: string, label: string, all: string, options: [string, string][]}} p */
const Choice = ({ name, label, all, options }) => html`<select aria-label=${label} value=${query.value[name] ?? ''} onChange=${typed((v) => filter({ [name]: v }))}>
  <option value="">${all}</option>${options.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>`;

/** @param {{name: string, label: string}} p */
const Time = ({ name, label }) => html`<label class="field"><span>${label}</span><input type="datetime-local" step="1" value=${query.value[name] ?? ''} onChange=${typed((v) => filter({ [name]: v }))} /></label>`;

/** @param {{applets: Api.AppletReply[], publishers: Api.PublisherReply[]}} p */
function Filters({ applets, publishers }) {
  const types = [...new Set(applets.flatMap((applet) => (applet.strategies ?? []).map((s) => s.eventType)))];
  const chosen = [...FILTERS, 'begin', 'end'].some((name) => query.value[name]);
  return html`<${Choice} name="type" label=${words.type} all=${words.allTypes} options=${types.map((one) => [one, one])} />
    <${Choice} name="publisher" label=${words.publisher} all=${words.allPublishers} options=${publishers.map((one) => [one.key, one.name])} />
    <${Choice} name="outcome" label=${words.outcome} all=${words.allOutcomes} options=${Object.entries(words.outcomes)} />
    <${Choice} name="source" label=${words.source} all=${words.allSources} options=${Object.entries(words.sources)} />
    <${Menu} label=${query.value.begin || query.value.end ? words.between : words.anyTime}><${Time} name="begin" label=${words.from} /><${Time} name="end" label=${words.until} /><//>
    ${chosen && html`<button type="button" class="ghost" onClick=${() => filter(Object.fromEntries([...FILTERS, 'begin', 'end'].map((name) => [name, ''])))}>${words.clear}</button>`}`;
}

/** @param {{row: EventRow, index: number, who: Record<string, string>, here: boolean}} p */
function Row({ row, index, who, here }) {
  const [kind, text] = outcomeOf(row);
  const [result] = row.results;
  return html`<div role="row" aria-rowindex=${index + 2} class=${`row open ${kind === 'bad' ? 'bad' : ''} ${here ? 'here' : ''}`} onClick=${() => filter({ event: row.place })}>
    <span role="cell" class="mono"><button type="button" class="link" aria-label=${words.eventOf(clock(row.handledAt))} title=${row.handledAt}>${clock(row.handledAt)}</button></span>
    <span role="cell">${row.eventType}</span><span role="cell">${who[row.publisherID] ?? (row.publisherID === '0' ? row.source : row.publisherID)}</span>
    <span role="cell" class="dim">${result?.appletName ? `${result.appletName}.${result.handler ?? ''}` : ''}</span><span role="cell" class="num dim">${size(row.size)}</span><span role="cell" class="num dim">${duration(took(row))}</span>
    <span role="cell">${kind ? html`<${Badge} kind=${kind}>${text}<//>` : html`<span class="dim">${text}</span>`}${row.traced && html` <${Badge} kind="info">${words.traced}<//>`}</span></div>`;
}

/** j and k open the next and the previous event, p pauses. @param {any} live @param {string} open */
function useKeys(live, open) {
  useEffect(() => {
    const press = (/** @type {KeyboardEvent} */ event) => {
      if (/** @type {Element} */ (event.target).closest('input, select, textarea, dialog:modal') || event.ctrlKey || event.metaKey || event.altKey) return;
      const rows = live.tail.shown;
      const at = rows.findIndex((/** @type {EventRow} */ row) => row.place === open);
      const next = event.key === 'j' ? at + 1 : event.key === 'k' ? at - 1 : -1;
      if (event.key === 'p') live.paused ? live.resume() : live.pause(true);
      else if (rows[next]) filter({ event: rows[next].place });
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, [live, open]);
}

/** @param {Project} p */
export function Page(p) {
  return p.more[0] ? html`<${StoryPage} project=${p.name} publishers=${p.publishers} eventID=${p.more[0]} />` : html`<${List} ...${p} />`;
}

/** @param {Project} p */
function List({ name, applets, publishers }) {
  const { type = '', publisher = '', outcome = '', source = '', begin = '', end = '', event = '' } = query.value;
  const wanted = { type, publisher, outcome, source };
  const times = { begin: begin && new Date(begin).toISOString(), end: end && new Date(end).toISOString() };
  const kept = useMemo(() => ({ since: '' }), [name]);
  const live = useTail({
    topic: 'events', project: name, filter: { ...wanted, ...times }, key: (row) => row.place, live: !begin && !end,
    load: async (before, signal) => {
      const answer = await get(`/event_log/${segment(name)}`, { ...wanted, ...times, before, limit: OPENED_WITH }, { signal });
      kept.since = answer.keptSince ?? kept.since;
      return answer;
    },
  });
  useKeys(live, event);
  const who = Object.fromEntries(publishers.map((one) => [one.publisherID, one.name]));
  const rows = live.tail.shown;
  const opened = rows.find((row) => row.place === event);
  const some = Object.values({ ...wanted, begin, end }).some(Boolean);
  return html`<${Card} kind="live events" controls=${html`<div class="line controls"><${PauseButton} live=${live} /><${Filters} applets=${applets} publishers=${publishers} /></div>`}>
      <div class="line status"><${Counts} live=${live} /><span class="grow"></span>${kept.since && html`<span class="dim">${keptSince} <time title=${kept.since}>${moment(kept.since)}</time></span>`}</div>
      <${Rows} kind="event-rows" label=${words.label} columns=${words.columns} rows=${rows} height=${30} onTop=${live.onTop} onHold=${live.hold} row=${(/** @type {EventRow} */ row, /** @type {number} */ index) => html`<${Row} key=${row.place} row=${row} index=${index} who=${who} here=${row.place === event} />`} />
      <${Newer} live=${live} />
      ${!rows.length && html`<div class="over">${live.error ? html`<${Problem} error=${live.error} again=${live.again} />` : !live.loaded ? html`<${Waiting} />` : some ? html`<${Empty} title=${words.noneFound} />` : html`<${Empty} title=${words.none} icon="pulse"><p>${words.noneHint}</p><a class="button primary" href=${to('projects', name, 'console')}>${words.toConsole}</a><//>`}</div>`}
      ${rows.length > 0 && live.next && html`<div class="pad"><button type="button" onClick=${() => attempt(live.older)}>${loadOlder}</button></div>`}<//>
    ${event && html`<${StoryPanel} key=${event} project=${name} place=${event} row=${opened} publishers=${publishers} onClose=${() => filter({ event: '' })} />`}`;
}
