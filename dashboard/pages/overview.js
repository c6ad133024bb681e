// @ts-check
/** The overview: is the node well, and since when not? */
import { html, useComputed, useEffect, useState } from '../vendor/preact.js';
import { useLoad } from '../core/load.js';
import { count, duration, rate, size } from '../core/format.js';
import { filter, query, to } from '../core/route.js';
import { RANGES, columns, rates, recent, show } from '../core/series.js';
import { isAdmin } from '../core/session.js';
import { follow } from '../core/stream.js';
import { AppletNames, Badge, Card, Empty, Failed, Heading, Show, Table } from '../parts/basics.js';
import { Lazily } from '../parts/lazily.js';
import { Chart, Sparkline } from '../parts/chart.js';
import * as words from '../words/en/overview.js';

const MEMORY = ['memoryGateways', 'memoryProjects', 'memoryRest'];
const MIB = 1 / (1 << 20);

/** @param {{label: string, names: string[], show: (value: any) => string, hint: string, color?: string}} p */
function Tile({ label, names, show: text, hint, color = '--accent' }) {
  const sums = useComputed(() => recent.value.t.map((_, i) => {
    const known = names.flatMap((name) => recent.value[name]?.[i] ?? []);
    return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
  }));
  const last = sums.value.at(-1);
  return html`<div class="tile card"><div class="label">${label}</div><div class="value">${last == null ? '–' : text(last)}</div><div class="hint">${hint}</div><${Sparkline} values=${sums.value} color=${color} /></div>`;
}

// Accounts that do not administer the node have the sums of their projects only.
const Tiles = () => html`<section class="tiles" aria-label=${words.now}>
  <${Tile} label=${words.events} names=${['events']} show=${(/** @type {any} */ v) => `${rate(v)}/s`} hint=${words.received} />
  ${isAdmin() && html`<${Tile} label=${words.answer} names=${['eventP99Ms']} show=${duration} hint=${words.answerHint} color="--violet" />
  <${Tile} label=${words.commit} names=${['commitP50Ms']} show=${duration} hint=${words.commitHint} color="--amber" />`}
  <${Tile} label=${words.failedRuns} names=${['failed']} show=${(/** @type {any} */ v) => `${rate(v)}/s`} hint=${words.failedHint} color="--red" />
  ${isAdmin() && html`<${Tile} label=${words.letters} names=${['deadLetters']} show=${count} hint=${words.lettersHint} color="--red" />
  <${Tile} label=${words.memory} names=${MEMORY} show=${size} hint=${words.memoryHint} color="--blue" />`}</section>`;

const { lines } = words;
const Charts = () => html`<section class="charts">
  <${Chart} title=${words.chartRates} unit=${words.perSecond} feed=${columns} format=${rate} lines=${[{ name: 'events', label: lines.events, color: '--accent', fill: true }, ...(isAdmin() ? [{ name: 'mqttMessages', label: lines.mqtt, color: '--blue' }, { name: 'refused', label: lines.refused, color: '--amber' }] : []), { name: 'failed', label: lines.failed, color: '--red', dash: [4, 3] }]} />
  ${isAdmin() && html`<${Chart} title=${words.chartAnswer} unit=${words.milliseconds} feed=${columns} format=${rate} lines=${[{ name: 'eventP50Ms', label: lines.p50, color: '--accent', fill: true }, { name: 'eventP99Ms', label: lines.p99, color: '--violet' }]} />
  <${Chart} title=${words.chartCommit} unit=${words.milliseconds} feed=${columns} format=${rate} lines=${[{ name: 'commitP50Ms', label: lines.commit, color: '--amber', fill: true }, { name: 'commitP99Ms', label: lines.commitP99, color: '--violet' }]} />
  <${Chart} title=${words.chartMemory} unit=${words.mebibytes} feed=${columns} lines=${[{ name: 'memoryProjects', label: lines.projects, color: '--blue', scale: MIB }, { name: 'memoryGateways', label: lines.gateways, color: '--accent', scale: MIB }, { name: 'memoryRest', label: lines.rest, color: '--dim', scale: MIB }]} />`}</section>`;

/** @param {{range: string}} p */
const Ranges = ({ range }) => html`<div class="segments" role="group" aria-label=${words.range}>${Object.entries(words.ranges).map(([name, text]) => html`<button type="button" aria-pressed=${name === range} onClick=${() => filter({ range: name === '5m' ? '' : name })}>${text}</button>`)}</div>`;

/** @param {{list: Api.ProjectRow[]}} p */
const Projects = ({ list }) => html`<${Table} label=${words.projects} columns=${[words.columns.name, [words.columns.events, 'num'], words.columns.applets]}>
  ${list.map((project) => html`<tr key=${project.projectID}><td><a href=${to('projects', project.projectName)}>${project.projectName}</a></td><td class="num">${rate(rates.value[project.projectName]?.events ?? 0)}</td>
    <td><${AppletNames} of=${project} /></td></tr>`)}<//>`;

/** @param {{projects: Loaded<Api.ProjectRows>}} p as `GET /project/detail_list` answers them */
export function Page({ projects }) {
  const range = /** @type {import('../core/series.js').Range} */ (query.value.range in RANGES ? query.value.range : '5m');
  const figures = useLoad((_, signal) => show(range, signal), [range]);
  const [health, know] = useState(/** @type {Api.HealthReply | null} */ (null));
  useEffect(() => (isAdmin() ? follow({ topic: 'health', on: know }) : undefined), []);
  const troubles = health?.data ?? [];
  const byRate = (projects.data?.data ?? []).toSorted((a, b) => (rates.value[b.projectName]?.events ?? 0) - (rates.value[a.projectName]?.events ?? 0));
  return html`<div class="page"><${Heading} title=${words.title} text=${isAdmin() ? words.text : words.own}>
      ${health && html`<${Badge} kind=${troubles.length ? 'bad' : 'good'}>${troubles.length ? words.problems(troubles.length) : words.well}<//>`}<${Ranges} range=${range} /><//>
    ${troubles.length > 0 && html`<${Card} title=${words.troubles}><${Lazily} load=${() => import('../parts/troubles.js')} part="Troubles" list=${troubles} /><//>`}
    ${projects.data && projects.data.data.length < 2 && html`<${Lazily} load=${() => import('../parts/first_steps.js')} part="FirstSteps" projects=${projects.data.data} />`}
    <${Failed} of=${figures} /><${Tiles} /><${Charts} />
    <${Card} title=${words.projects}><${Show} of=${projects}>${() => (byRate.length ? html`<${Projects} list=${byRate} />` : html`<${Empty} title=${words.projects} icon="box"><a class="button primary" href="/projects?new=1">${words.newProject}</a><//>`)}<//><//></div>`;
}
