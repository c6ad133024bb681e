// @ts-check
/** What became of an event of the console. */
import { html } from '../../../vendor/preact.js';
import { clock, duration } from '../../../core/format.js';
import { Badge, Card, Empty, Table } from '../../../parts/basics.js';
import { Report } from './report.js';
import { StoryPage } from '../story.js';
import { LIMIT, outcomeOf } from './kept.js';
import * as words from '../../../words/en/console.js';

/** @param {{entry: import('./kept.js').Entry}} p */
function Outcome({ entry }) {
  const went = outcomeOf(entry);
  const text = entry.error ? words.refused : went === null ? words.nothingRan : went ? words.accepted : words.failed;
  return html`<${Badge} kind=${went === null ? 'warn' : went ? 'good' : 'bad'}>${text}<//>`;
}

/** @param {{project: string, publishers: Api.PublisherReply[], entry: import('./kept.js').Entry | undefined}} p */
export function Result({ project, publishers, entry }) {
  if (!entry) return html`<${Card} title=${words.result}><${Empty} title=${words.none} icon="send">${words.noneHint}<//><//>`;
  const took = duration(entry.ms);
  return html`<div class="stack"><${Card} title=${words.result} controls=${html`<${Outcome} entry=${entry} /><span class="dim">${entry.report ? words.ranIn(took) : words.answeredIn(took)}</span>`}>
      ${entry.error && html`<div class="pad"><p class="error" role="alert">${entry.error.message} ${entry.error.key && html`<code>${entry.error.key}</code>`}</p></div>`}${entry.report && html`<${Report} report=${entry.report} />`}<//>
    ${entry.eventID && !entry.error && html`<${StoryPage} key=${entry.eventID} project=${project} eventID=${entry.eventID} publishers=${publishers} applets=${[]} />`}</div>`;
}

/** @param {{entries: import('./kept.js').Entry[], shown?: import('./kept.js').Entry, show: (entry: import('./kept.js').Entry) => void}} p */
export function History({ entries, shown, show }) {
  const { time, way, type, payload, outcome } = words.historyColumns;
  return html`<${Card} title=${words.history} controls=${html`<small class="dim">${words.historyText(LIMIT)}</small>`}><${Table} label=${words.history} columns=${[time, way, type, payload, outcome]}>
    ${entries.map((entry) => html`<tr key=${entry.number} aria-current=${entry === shown ? 'true' : undefined}><td><button type="button" class="link mono" aria-label=${words.open(clock(entry.at))} onClick=${() => show(entry)}>${clock(entry.at)}</button></td><td>${words.ways[entry.draft.way]}</td><td>${entry.draft.type}</td>
      <td class="mono cut">${entry.draft.text.replace(/\s+/g, ' ').slice(0, 80)}</td><td><${Outcome} entry=${entry} /></td></tr>`)}<//><//>`;
}
