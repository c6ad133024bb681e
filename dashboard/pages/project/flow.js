// @ts-check
/** The flow of a project: where does my event go? */
import { html } from '../../vendor/preact.js';
import { useLoad } from '../../core/load.js';
import { Card, Show } from '../../parts/basics.js';
import { AsCommand } from '../../parts/code.js';
import { quoted } from '../../core/format.js';
import * as words from '../../words/en/flow.js';
import { graphOf } from './flow/graph.js';
import { Picture } from './flow/picture.js';
import { Routes } from './flow/routes.js';

const EVERY_MS = 3000;
const KINDS = /** @type {const} */ (['contract_log', 'chain_tx', 'chain_height']);

/** What sends events by itself. @param {string} name @param {string} id @param {Get} get */
async function loadTriggers(name, id, get) {
  const [crons, ...monitors] = await Promise.all([
    get(`/cronjob/${id}`),
    ...KINDS.map((kind) => get(`/monitor/${kind}/${encodeURIComponent(name)}`, { size: 100 })),
  ]);
  return { crons: crons.data, monitors: monitors.flatMap(({ data }, i) => data.map((one) => ({ ...one, kind: KINDS[i] }))) };
}

const Legend = () => html`<ul class="flow-legend" aria-hidden="true">${Object.entries(words.legend).map(([kind, text]) => html`<li><svg width="26" height="8"><path class=${`wire ${kind}`} d="M0 4h26" /></svg>${text}</li>`)}</ul>`;

/** @param {Project} project */
export function Page({ name, id, applets, publishers, letters }) {
  const triggers = useLoad((get) => loadTriggers(name, id, get), [name, id], 30_000);
  const flow = useLoad((get) => get(`/event_log/${encodeURIComponent(name)}/flow`), [name], EVERY_MS);
  const loaded = { ...flow, data: flow.data && triggers.data ? { flow: flow.data, ...triggers.data } : undefined, error: flow.error ?? triggers.error };
  const shown = (/** @type {Awaited<ReturnType<typeof loadTriggers>> & {flow: Api.FlowReply}} */ data) => {
    const graph = graphOf({ ...data, applets, publishers, letters });
    const summary = graph.events ? words.summary(graph.events, graph.failed) : words.quiet;
    return html`<${Card} kind="only-wide" title=${words.title} label=${words.title} controls=${html`<span class="hint">${summary}</span>`}><${Picture} graph=${graph} name=${name} /><${Legend} /><//>
      <${Routes} name=${name} applets=${applets} publishers=${publishers} flow=${data.flow} summary=${summary} />`;
  };
  return html`<div class="stack flow-page"><${Show} of=${loaded} rows=${8}>${shown}<//><${AsCommand} text=${`fieldbrook event flow ${quoted(name)}`} /></div>`;
}
