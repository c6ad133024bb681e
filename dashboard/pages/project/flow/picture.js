// @ts-check
/** The flow as a picture: nodes are links, lines are as thick as they are busy. */
import { html, useEffect, useRef, useState } from '../../../vendor/preact.js';
import { to } from '../../../core/route.js';
import { Icon } from '../../../parts/basics.js';
import * as words from '../../../words/en/flow.js';
import { connected, layout } from './layout.js';

/** @typedef {import('./graph.js').Node} Node */
/** @typedef {import('./layout.js').Box} Box */

/** How busy a node is. @param {{rate: number, recent: number}} of */
const busy = ({ rate, recent }) => (rate > 0 ? words.perSecond(rate) : recent ? words.inFive(recent) : '');

/** The second line of a node: how busy it is, then failures, else its hint. @param {any} node */
function Second({ node }) {
  const now = node.rows || node.id === 'eletters' ? '' : busy(node);
  const more = node.failed && node.id !== 'eletters' ? html`<span class="failed">${words.failed(node.failed)}</span>` : (now && node.brief) || !node.hint ? '' : html`<span class=${node.failed ? 'failed' : ''}>${node.hint}</span>`;
  return html`<small>${now && html`<b>${now}</b>`}${now && more && ' · '}${more}</small>`;
}

/** @param {any} node */
const kindOf = (node) => [node.ghost && 'ghost', node.failed && 'bad', (node.loose || node.stopped) && 'loose', !node.recent && !node.ghost && !node.id.startsWith('e') && 'idle', node.rows && 'applet'].filter(Boolean).join(' ');

/** @param {{node: import('./graph.js').Node, box: Box, href: string, on: boolean, point: (id: string) => void, query: string}} p */
function Part({ node, box, href, on, point, query }) {
  const place = { left: `${box.x}px`, top: `${box.y}px`, width: `${box.wide}px`, height: `${box.tall}px` };
  const pointing = (/** @type {string} */ id) => ({ onMouseEnter: () => point(id), onMouseLeave: () => point(''), onFocus: () => point(id), onBlur: () => point('') });
  return html`<div class=${`node ${kindOf(node)} ${on ? 'on' : ''}`} style=${place}>
    <a href=${href + query} ...${pointing(node.id)}><span class="mark"><${Icon} name=${node.icon} /></span><span class="what"><span class="name" title=${node.text}>${node.text}</span><${Second} node=${node} /></span></a>
    ${node.rows?.map((/** @type {import('./graph.js').Row} */ row) => html`<div key=${row.id} class=${`handler ${row.failed ? 'bad' : ''}`} onMouseEnter=${() => point(row.id)} onMouseLeave=${() => point('')}><span class="name mono" title=${row.text}>${row.text}</span>
      ${row.dead ? html`<small class="failed">${words.dead}</small>` : row.failed ? html`<small class="failed">${words.failed(row.failed)}</small>` : html`<b>${busy(row)}</b>`}</div>`)}</div>`;
}

/** @param {{lines: import('./layout.js').Drawn[], wide: number, tall: number, shown: Set<string> | null}} p */
const Lines = ({ lines, wide, tall, shown }) => html`<svg viewBox=${`0 0 ${wide} ${tall}`} width=${wide} height=${tall} aria-hidden="true">
  ${lines.map(({ id, d, kind, wide: thick, from, to: end }) => html`<path key=${id} class=${`wire ${kind} ${!shown || (shown.has(from) && shown.has(end)) ? '' : 'off'}`} d=${d} style=${{ strokeWidth: `${thick}px` }} />`)}
  ${lines.filter(({ seconds }) => seconds).map(({ id, d, kind, seconds, from, to: end }) => html`<circle key=${`${id}.`} r="2.5" class=${`dot ${kind} ${!shown || (shown.has(from) && shown.has(end)) ? '' : 'off'}`} style=${{ offsetPath: `path("${d}")`, animationDuration: `${seconds.toFixed(1)}s` }} />`)}</svg>
  ${lines.map(({ id, label, kind, from, to: end }) => label && html`<span key=${id} class=${`rate-of ${kind} ${!shown || (shown.has(from) && shown.has(end)) ? '' : 'off'}`} style=${{ left: `${label.x}px`, top: `${label.y}px` }} aria-hidden="true">${label.text}</span>`)}`;

/** @param {{graph: import('./graph.js').Graph, name: string}} p */
export function Picture({ graph, name }) {
  const box = useRef(/** @type {any} */ (null));
  const [wide, set] = useState(0);
  const [pointed, point] = useState('');
  useEffect(() => {
    const sized = new ResizeObserver(() => set(Math.floor(box.current?.clientWidth ?? 0)));
    sized.observe(box.current);
    return () => sized.disconnect();
  }, []);
  const shown = pointed ? connected(graph, pointed) : null;
  const found = wide ? layout(graph, wide, shown) : null;
  const heads = Object.values(words.columns);
  return html`<div class=${`flow ${shown ? 'pointed' : ''}`} ref=${box} role="group" aria-label=${words.picture} style=${{ height: `${found?.tall ?? 300}px` }}>
    ${found && html`<${Lines} lines=${found.lines} wide=${wide} tall=${found.tall} shown=${shown} />
      ${found.heads.map((x, i) => graph.columns[i].length > 0 && html`<span class="head" style=${{ left: `${x}px` }}>${heads[i]}</span>`)}
      ${graph.columns.flat().map((node) => html`<${Part} key=${node.id} node=${node} box=${found.boxes.get(node.id)} on=${!shown || shown.has(node.id)} point=${point} href=${to('projects', name, ...node.to)} query=${node.mark ? `?${new URLSearchParams(node.mark)}` : ''} />`)}`}</div>`;
}
