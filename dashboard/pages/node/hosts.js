// @ts-check
/** The hosts of the cluster, and what the loss of one more would mean. */
import { html } from '../../vendor/preact.js';
import { useLoad } from '../../core/load.js';
import { NONE, count, duration } from '../../core/format.js';
import { filter, query, to } from '../../core/route.js';
import { Badge, Card, Heading, Show, Table, typed } from '../../parts/basics.js';
import { AsCommand } from '../../parts/code.js';
import * as words from '../../words/en/hosts.js';

const EVERY_MS = 2000;
const { host: HOST, state, version, ...figures } = words.columns;
const COLUMNS = [HOST, state, version, ...Object.values(figures).map((name) => [name, 'num'])];

/** @param {any} value @param {(value: any) => any} shown */
const known = (value, shown) => (value === undefined ? NONE : shown(value));

/** @param {Api.HostRow} one */
const row = (one) => html`<tr key=${one.name}><td><span class="line"><strong>${one.name}</strong><span class="dim">${one.me ? words.me : one.address}</span>${one.changesRegistry && html`<${Badge}>${words.registry}<//>`}</span></td>
  <td><${Badge} kind=${words.kinds[one.state] ?? 'warn'}>${one.state}<//></td><td>${one.version ?? NONE}</td><td class="num">${known(one.silentS, (s) => (one.me ? NONE : duration(s * 1000)))}</td>
  <td class="num">${count(one.projects)} <span class="dim">${known(one.running, words.running)}</span></td><td class="num">${known(one.streamsHeld, (n) => words.some(count(one.streamsLed), n))}</td><td class="num">${known(one.load, (n) => n.toFixed(2))}</td>
  <td class="num">${count(one.lagRecords)} ${words.changes(one.registryLag ?? 0)}</td><td class="num">${known(one.clockAheadS, words.ahead)}</td></tr>`;

/** @param {{hosts: Api.HostRow[]}} p */
function Owners({ hosts }) {
  const host = query.value.host ?? '';
  const owners = useLoad((get) => get('/cluster/projects', { host, size: 200 }), [host], EVERY_MS);
  const list = (/** @type {Api.OwnedPage} */ { data, total }) => html`<${Table} label=${words.owners} columns=${[words.project, HOST]}>${data.map((one) => html`<tr key=${one.projectID}><td><a href=${to('projects', one.project)}>${one.project}</a></td><td>${one.host} ${one.pinnedTo && html`<${Badge}>${words.pinned(one.pinnedTo)}<//>`}</td></tr>`)}<//>
    ${total > data.length && html`<p class="pad hint">${words.some(count(data.length), count(total))}</p>`}`;
  return html`<${Card} title=${words.owners} controls=${html`<select aria-label=${HOST} value=${host} onChange=${typed((name) => filter({ host: name }))}><option value="">${words.all}</option>${hosts.map(({ name }) => html`<option>${name}</option>`)}</select>`}><${Show} of=${owners}>${list}<//><//>`;
}

export function Page() {
  const hosts = useLoad((get) => get('/cluster'), [], EVERY_MS);
  const content = (/** @type {Api.HostList} */ { data, spare, outlook }) => html`<${Card} title=${words.loss} controls=${html`<${Badge} kind=${spare ? 'good' : 'bad'}>${words.spare(spare)}<//>`}><p class="pad">${outlook}</p><//>
    <${Card} title=${words.title}><${Table} label=${words.title} columns=${COLUMNS}>${data.map(row)}<//><p class="pad hint">${words.hint}</p><//><${Owners} hosts=${data} />`;
  return html`<div class="page"><${Heading} title=${words.title} text=${words.text} /><${Show} of=${hosts}>${content}<//><${AsCommand} text="fieldbrook cluster status" /></div>`;
}
