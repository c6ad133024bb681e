// @ts-check
/** One event's story: what happened to it, in the order in which it happened. */
import { html } from '../../vendor/preact.js';
import { post, segment } from '../../core/api.js';
import { attempt, useLoad } from '../../core/load.js';
import { clock, duration, levelKind, moment, quoted, readable, size } from '../../core/format.js';
import { to } from '../../core/route.js';
import { Ago, Badge, Card, Copy, Do, Empty, Failed, Show, Waiting, say } from '../../parts/basics.js';
import { AsCommand, Code } from '../../parts/code.js';
import { Dialog } from '../../parts/dialog.js';
import { HostCalls } from './host_calls.js';
import * as words from '../../words/en/events.js';
import { microseconds } from '../../words/en/host_calls.js';


/** @param {{kind?: string, at?: string, title: any, children?: any}} p */
const Step = ({ kind = '', at, title, children }) => html`<li class=${kind}><time title=${at}>${at ? clock(at) : ''}</time><div><div class="what">${title}</div>${children}</div></li>`;

/** @param {{base64: string | undefined, size: number}} p */
function Payload({ base64, size: length }) {
  if (!length) return html`<p class="dim">${words.noPayload}</p>`;
  if (base64 == null) return html`<p class="dim">${words.payloadGone}</p>`;
  const { kind, text } = readable(base64);
  return html`${kind === 'bytes' && html`<p class="dim">${words.bytesShown}</p>`}<${Code} label=${words.payload} text=${text} plain=${kind !== 'json'} />`;
}

/** @typedef {Api.EventDetails} Details */
/** @typedef {Api.EventRow & Partial<Details>} Row as a list has it, or with its details */

/** @param {{result: Api.HandlerResult, traced?: Api.TracedRun}} p */
const Run = ({ result, traced }) => html`<${Step} kind=${result.code < 0 ? 'bad' : ''} title=${html`<strong>${result.errMsg ? words.failed : words.ran}</strong> ${result.appletName ?? result.instanceID}<b>.${result.handler ?? ''}</b>
    <span class="dim">${result.appletVersion != null && `, ${words.version(result.appletVersion)}`}, ${words.returned}</span> <b>${result.code}</b>${traced && html` <span class="dim">${words.afterTime(microseconds(traced.us))}${traced.memoryBytes ? `, ${words.withMemory(size(traced.memoryBytes))}` : ''}</span>`}`}>
  ${result.errMsg && html`<p class="error">${result.errMsg}</p>`}<//>`;

/** @param {{rows: Api.LogLine[]}} p */
const Logged = ({ rows }) => html`<${Step} title=${html`<strong>${words.logged}</strong>`}>${rows.map((row) => html`<p class="log-line mono"><${Badge} kind=${levelKind(row.level)}>${row.level}<//> ${row.msg}</p>`)}<//>`;

/** @param {{effect: Api.Effect}} p */
const Sent = ({ effect }) => html`<${Step} at=${effect.at} kind=${effect.state === 'refused' ? 'bad' : ''} title=${html`<strong>${words.sent}</strong> ${effect.kind} ${words.to} <b>${effect.target}</b>, ${size(effect.size)} <${Badge} kind=${effect.state === 'delivered' ? 'good' : effect.state === 'refused' ? 'bad' : ''}>${/** @type {any} */ (words.states)[effect.state] ?? effect.state}<//>`}>${effect.reason && html`<p class="error">${effect.reason}</p>`}<//>`;

/** @param {{project: string, row: Row, traced: Details['trace']}} p */
function Wrote({ project, row, traced }) {
  if (traced) return html`<${Step} title=${html`<strong>${words.wrote}</strong>`}><${HostCalls} calls=${traced.calls} omitted=${traced.omitted} /><//>`;
  const trace = () => attempt(() => post(`/event_log/${segment(project)}/trace`, { events: 100, minutes: 10 }), words.tracing);
  return html`<${Step} title=${html`<strong>${words.wrote}</strong>`}><p class="dim">${row.traced ? words.traceGone : words.notTraced} <button type="button" class="small" onClick=${trace}>${words.traceNext}</button></p><//>`;
}

/** @param {{project: string, row: Row, publisher: string, details?: Partial<Details>}} p */
function Steps({ project, row, publisher, details }) {
  const { logs = [], effects = [], refusals = [], transactions = [] } = details ?? {};
  const time = Date.parse(row.handledAt) - Date.parse(row.receivedAt);
  return html`<ol class="story">
    <${Step} at=${row.receivedAt} title=${html`<strong>${words.received}</strong> ${words.over} ${row.source || 'http'} ${words.by} <b>${publisher}</b>, ${words.ofType} <b>${row.eventType}</b>, ${size(row.size)}`}>${details ? html`<${Payload} base64=${details.payload} size=${row.size} />` : html`<${Waiting} rows=${2} />`}<//>
    ${refusals.map((refusal) => html`<${Step} kind="bad" at=${refusal.refusedAt} title=${html`<strong>${words.refused}</strong> ${refusal.error}`}><p>${refusal.reason}</p><//>`)}
    ${row.error && html`<${Step} kind="bad" title=${html`<strong>${words.refused}</strong> ${row.error}`} />`}
    ${row.again ? html`<${Step} title=${words.again} />` : html`<${Step} kind=${row.results.length ? '' : 'warn'} title=${html`<strong>${words.matched}</strong> ${row.results.length ? words.strategies(row.results.length) : words.nothingHandles(row.eventType)}`}>${!row.results.length && html`<p><a href=${to('projects', project, 'applets')}>${words.addStrategy}</a></p>`}<//>`}
    ${!row.again && row.results.map((result) => html`<${Run} result=${result} traced=${details?.trace?.runs.find((run) => run.strategyID === result.strategyID)} />`)}
    ${logs.length > 0 && html`<${Logged} rows=${logs} />`}
    ${details && row.results.length > 0 && !row.again && html`<${Wrote} project=${project} row=${row} traced=${details.trace} />`}
    <${Step} at=${row.handledAt} title=${html`<strong>${words.answered}</strong> ${words.afterTime(duration(time))}`} />
    ${transactions.map((one) => html`<${Step} title=${html`<strong>${words.transaction}</strong> <a href=${`${to('projects', project, 'transactions')}?find=${one.hash}`}><code>${one.hash}</code></a> ${words.onChain(one.chainID)} <${Badge}>${one.state}<//>`} />`)}
    ${effects.map((effect) => html`<${Sent} effect=${effect} />`)}</ol>`;
}

/** @param {{project: string, row: Row, details?: Partial<Details>}} p */
function Actions({ project, row, details }) {
  const run = () => attempt(async () => {
    const received = Date.parse(row.receivedAt);
    const range = { from: row.receivedAt, to: new Date(received + 1).toISOString(), after: String(BigInt(row.place) - 1n), limit: 1 };
    const done = await post(`/event_log/${segment(project)}/replay`, range);
    if (!done.replayed) throw new Error(words.notAgain);
    say(words.ranAgain);
  });
  const payload = details?.payload;
  const body = JSON.stringify({ header: { pub_id: 'PUBLISHER', token: 'TOKEN', event_type: row.eventType }, payload: payload ?? '' });
  const failed = row.results.some((result) => result.errMsg);
  return html`<div class="line"><${Do} icon="play" disabled=${payload == null} onClick=${run}>${words.runAgain}<//>
      <a class="button" href=${`${to('projects', project, 'console')}?from=${row.place ?? ''}`}>${words.tryVersion}</a>
      ${payload != null && html`<${Copy} label=${words.asCurl} text=${`curl -d ${quoted(body)} ${location.origin}/srv-applet-mgr/v0/event/${segment(project)}`} />`}
      ${failed && html`<a href=${to('projects', project, 'letters')}>${words.toLetters}</a>`}</div>
    <${AsCommand} text=${`fieldbrook event show ${quoted(project)} ${quoted(row.eventID)}`} />`;
}

/** Whether the history has moved on. @param {any} error */
const isGone = (error) => error?.status === 404;

/** @param {Api.PublisherReply[]} publishers @param {Row} row */
const publisherOf = (publishers, row) => publishers.find((one) => one.publisherID === row.publisherID)?.name ?? (row.publisherID === '0' ? row.source : row.publisherID);

/** @param {{project: string, place: string, row?: Row, publishers: Api.PublisherReply[], onClose: () => void}} p row: as the list has it */
export function StoryPanel({ project, place, row: known, publishers, onClose }) {
  const loaded = useLoad((get) => get(`/event_log/${segment(project)}/at/${segment(place)}`), [project, place]);
  const { data } = loaded;
  const row = data ?? known;
  return html`<${Dialog} side title=${words.story} onClose=${onClose}>
    ${isGone(loaded.error) ? html`<${Empty} title=${words.gone}>${words.goneHint}<//>` : html`<${Failed} of=${loaded} />`}
    ${row && html`<div class="line"><code>${row.eventID}</code><${Copy} text=${row.eventID} /><span class="dim">${moment(row.handledAt)}</span><a href=${to('projects', project, 'events', row.eventID)}>${words.openPage}</a></div>
      <${Steps} project=${project} row=${row} publisher=${publisherOf(publishers, row)} details=${data} />
      ${data && html`<${Actions} project=${project} row=${row} details=${data} />`}`}<//>`;
}

/** The story as a page of its own, found by the event's id. @param {{project: string, eventID: string, publishers: Api.PublisherReply[]}} p */
export function StoryPage({ project, eventID, publishers }) {
  const loaded = useLoad((get) => load(project, eventID, get), [project, eventID]);
  return html`<${Show} of=${loaded}>${(/** @type {Row[]} */ found) => (found.length
    ? found.map((row) => html`<${Card} title=${row.eventID} controls=${html`<span class="dim"><${Ago} at=${row.handledAt} /></span><${Copy} text=${row.eventID} />`}><div class="pad stack"><${Steps} project=${project} row=${row} publisher=${publisherOf(publishers, row)} details=${row} /><${Actions} project=${project} row=${row} details=${row} /></div><//>`)
    : html`<${Empty} title=${words.gone}>${words.goneHint}<//>`)}<//>`;
}

/** All that happened under an id: the event, its duplicates, its replays. @param {string} project @param {string} eventID @param {Get} get */
async function load(project, eventID, get) {
  const { data } = await get(`/event_log/${segment(project)}`, { eventID, limit: 20 });
  return Promise.all(data.map((row) => get(`/event_log/${segment(project)}/at/${segment(row.place)}`).catch((error) => (isGone(error) ? /** @type {Row} */ (row) : Promise.reject(error)))));
}
