// @ts-check
/** The flow as a table: a row for each event type and handler. */
import { html } from '../../../vendor/preact.js';
import { to } from '../../../core/route.js';
import { count } from '../../../core/format.js';
import { Badge, Card, Empty, Table } from '../../../parts/basics.js';
import * as words from '../../../words/en/flow.js';

const COLUMNS = [words.table.type, words.table.handler, [words.table.events, 'num'], [words.table.failed, 'num'], [words.table.recent, 'num'], words.table.applet, words.table.from];
const SHOWN = 3; // sources that are named

/** Who sends a type. @param {Api.FlowReply} flow @param {string} type @param {Map<string, string>} names */
function from(flow, type, names) {
  const found = flow.sources.filter((one) => one.eventType === type).map((one) => names.get(one.publisherID) ?? words.otherSources[one.source] ?? one.source);
  const unique = [...new Set(found)];
  return [...unique.slice(0, SHOWN), ...(unique.length > SHOWN ? [words.morePublishers(unique.length - SHOWN)] : [])].join(', ') || words.nothing;
}

/** @param {{name: string, applets: Api.AppletReply[], publishers: Api.PublisherReply[], flow: Api.FlowReply, summary: string}} p */
export function Routes({ name, applets, publishers, flow, summary }) {
  const strategies = applets.flatMap((applet) => (applet.strategies ?? []).map((one) => ({ ...one, applet })));
  const types = [...new Set([...strategies.map(({ eventType }) => eventType), ...flow.types.map((one) => one.eventType)])].sort();
  const senders = new Map(publishers.map((one) => [one.publisherID, one.name || one.key]));
  const row = (/** @type {string} */ type, /** @type {typeof strategies[number] | null} */ strategy) => {
    const seen = flow.types.find((one) => one.eventType === type);
    const failed = strategy ? flow.handlers.find((one) => one.strategyID === strategy.strategyID)?.failed : 0;
    return html`<tr key=${`${type}.${strategy?.strategyID}`}><td><a href=${`${to('projects', name, 'events')}?${new URLSearchParams({ type })}`}>${type}</a></td>
      <td class="nowrap">${strategy ? html`<span class="mono">${strategy.handler}</span> ${strategy.dead && html`<${Badge} kind="bad">${words.dead}<//>`}` : html`<${Badge} kind="warn">${words.unhandled}<//>`}</td>
      <td class="num">${seen?.perSecond ? words.perSecond(seen.perSecond) : words.nothing}</td>
      <td class="num">${failed ? html`<a href=${`${to('projects', name, 'events')}?${new URLSearchParams({ type, outcome: 'failed' })}`}><${Badge} kind="bad">${count(failed)}<//></a>` : words.nothing}</td>
      <td class="num">${seen ? count(seen.events) : words.nothing}</td>
      <td>${strategy && html`<a href=${to('projects', name, 'applets')}>${strategy.applet.name}</a>`}</td><td class="dim">${from(flow, type, senders)}</td></tr>`;
  };
  const rows = types.flatMap((type) => {
    const own = strategies.filter(({ eventType }) => eventType === type);
    return own.length ? own.map((strategy) => row(type, strategy)) : [row(type, null)];
  });
  return html`<${Card} title=${words.columns.types} controls=${html`<span class="hint only-narrow">${summary}</span>`}>${rows.length ? html`<${Table} label=${words.columns.types} columns=${COLUMNS}>${rows}<//>` : html`<${Empty} title=${words.none} icon="tag">${words.noneHint}<//>`}<//>`;
}
