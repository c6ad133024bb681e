// @ts-check
/** Charts over time (uPlot) and lines without axes. */
import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import uPlot from '../vendor/uplot.js';
import { count } from '../core/format.js';
import { colour, dark } from '../core/theme.js';
import * as words from '../words/en/common.js';

const TOGETHER = uPlot.sync('node'); // one cursor for all charts of a page
const FONT = '11px system-ui, sans-serif';

/** @typedef {{name: string, label: string, color: string, fill?: boolean, dash?: number[], scale?: number}} Line scale: factor for display */

/** @param {number} at Unix seconds @param {boolean} seconds */
const timeOfDay = (at, seconds) => new Date(at * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit', ...(seconds ? { second: '2-digit' } : {}) });

/** The places of values without neighbours, which no line reaches. @param {any} u @param {number} line @returns {number[]} */
const lone = ({ data }, line) => [...data[line].keys()].filter((i) => data[line][i] != null && data[line][i - 1] == null && data[line][i + 1] == null);

/** @param {Line[]} lines @param {(v: number) => string} show @param {number} width @param {number} height @returns {any} */
function optionsFor(lines, show, width, height) {
  const ink = colour('--dim');
  return {
    width,
    height,
    padding: [10, 8, 0, 0],
    cursor: { sync: { key: TOGETHER.key }, points: { size: 6 }, drag: { x: false, y: false } },
    legend: { show: false },
    scales: { y: { range: (/** @type {any} */ _u, /** @type {number} */ _low, /** @type {number} */ high) => [0, Math.max((high || 0) * 1.1, 1)] } },
    axes: [
      { stroke: ink, font: FONT, size: 24, gap: 6, space: 80, grid: { show: false }, ticks: { show: false }, values: (/** @type {any} */ _u, /** @type {number[]} */ at) => at.map((t) => timeOfDay(t, (at[1] ?? t) - at[0] < 60)) },
      { stroke: ink, font: FONT, size: 48, gap: 8, space: 36, grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, values: (/** @type {any} */ _u, /** @type {number[]} */ at) => at.map(show) },
    ],
    series: [{}, ...lines.map((one) => ({ label: one.label, stroke: colour(one.color), width: 1.6, dash: one.dash, points: { show: false, size: 4, filter: lone }, fill: one.fill ? colour(one.color, 0.12) : undefined }))],
  };
}

/**
 * @param {{title: string, unit: string, lines: Line[], feed: Signal<Record<string, number[]>>,
 *   height?: number, format?: (value: number) => string}} p
 */
export function Chart({ title, unit, lines, feed, height = 170, format = count }) {
  const place = useRef(/** @type {any} */ (null));
  const [at, point] = useState(/** @type {number | null} */ (null));
  const data = () => [feed.value.t ?? [], ...lines.map(({ name, scale = 1 }) => (feed.value[name] ?? []).map((v) => (v == null ? v : v * scale)))];
  useEffect(() => {
    const box = place.current;
    const options = optionsFor(lines, format, Math.max(box.clientWidth, 50), height);
    options.hooks = { setCursor: [(/** @type {any} */ u) => point(u.cursor.idx ?? null)] };
    const plot = new uPlot(options, /** @type {any} */ (data()), box);
    const sized = new ResizeObserver(() => box.clientWidth && plot.setSize({ width: box.clientWidth, height }));
    sized.observe(box);
    let frame = 0;
    const stop = feed.subscribe(() => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        plot.setData(/** @type {any} */ (data()));
      });
    });
    return () => {
      stop();
      cancelAnimationFrame(frame);
      sized.disconnect();
      plot.destroy();
    };
  }, [dark.value]);
  const now = (/** @type {Line} */ { name, scale = 1 }) => {
    const column = feed.value[name] ?? [];
    const value = column[at ?? column.length - 1];
    return value == null ? '–' : format(value * scale);
  };
  const time = at != null && feed.value.t[at] ? timeOfDay(feed.value.t[at], true) : '';
  return html`<figure class="chart card"><figcaption><strong>${title}</strong> <small>${unit}</small><span class="grow"></span><small class="at">${time}</small></figcaption>
    <ul class="legend">${lines.map((one) => html`<li><i class=${one.color.slice(2)}></i>${one.label} <b>${now(one)}</b></li>`)}</ul>
    <div class="plot" ref=${place} role="img" aria-label=${words.overTime(title, unit)}></div>
    <${AsTable} title=${title} lines=${lines} feed=${feed} format=${format} /></figure>`;
}

/** The last, least and most of each line, for those who do not see the picture. @param {any} p */
function AsTable({ title, lines, feed, format }) {
  const [open, set] = useState(false);
  const row = (/** @type {Line} */ { name, label, scale = 1 }) => {
    const known = (feed.value[name] ?? []).filter((/** @type {any} */ v) => v != null).map((/** @type {number} */ v) => v * scale);
    const low = known.reduce((/** @type {number} */ a, /** @type {number} */ b) => Math.min(a, b), Infinity);
    const high = known.reduce((/** @type {number} */ a, /** @type {number} */ b) => Math.max(a, b), -Infinity);
    return html`<tr><th scope="row">${label}</th>${[known.at(-1), low, high].map((v) => html`<td class="num">${Number.isFinite(v) ? format(v) : '–'}</td>`)}</tr>`;
  };
  return html`<details class="as-table" onToggle=${(/** @type {any} */ e) => set(e.target.open)}><summary>${words.asTable}</summary>${open && html`<table class="list"><caption class="hidden">${title}</caption><thead><tr><td></td>${[words.latest, words.least, words.most].map((name) => html`<th scope="col" class="num">${name}</th>`)}</tr></thead><tbody>${lines.map(row)}</tbody></table>`}</details>`;
}

/** A line of the last values, without axes. @param {{values: (number | null)[], color?: string}} p */
export function Sparkline({ values, color = '--accent' }) {
  const [width, height] = [120, 28];
  const last = values.slice(-90).map((v) => v ?? 0);
  const top = Math.max(...last, 1e-9);
  const points = last.map((v, i) => `${((i / Math.max(1, last.length - 1)) * width).toFixed(1)},${(height - 2 - (v / top) * (height - 4)).toFixed(1)}`).join(' ');
  return html`<svg class="sparkline" viewBox=${`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true"><polyline points=${points} class=${color.slice(2)} /></svg>`;
}
