// @ts-check
/** The node's figures over time: loaded once for a range, then one more sample a second. */
import { signal } from '../vendor/preact.js';
import { get } from './api.js';
import { follow } from './stream.js';

/** Ranges of the charts in seconds, with the step of their samples. */
export const RANGES = { '5m': [300, 1], '15m': [900, 1], '3h': [10_800, 10], '24h': [86_400, 60] };

/** @typedef {keyof typeof RANGES} Range */
/** @typedef {Record<string, number[]>} Columns `t` in Unix seconds, and one column for each name */

/** @type {import('../vendor/preact.js').Signal<Columns>} */
export const columns = signal({ t: [] });
/** The last five minutes, whatever the charts show. @type {import('../vendor/preact.js').Signal<Columns>} */
export const recent = signal({ t: [] });
/** Events and failed runs per second, by the names of projects. @type {import('../vendor/preact.js').Signal<Record<string, {events: number, failed: number}>>} */
export const rates = signal({});

let shown = /** @type {Range} */ ('5m');

/** The columns by name; the times come first. @param {{names: string[], columns: number[][]}} answer @returns {Columns} */
const byName = (answer) => Object.fromEntries(['t', ...answer.names].map((name, i) => [name, answer.columns[i]]));

/** @param {Range} range @param {AbortSignal} [end] */
async function load(range, end) {
  const [length, step] = RANGES[range];
  const begin = new Date(Date.now() - length * 1000).toISOString();
  return byName(await get('/series', { step, begin }, { signal: end }));
}

/** Show a range in the charts. @param {Range} range @param {AbortSignal} [end] */
export async function show(range, end) {
  shown = range;
  const loaded = await load(range, end);
  if (shown !== range) return;
  columns.value = loaded;
  if (range === '5m') recent.value = loaded;
}

/** @param {Columns} into @param {Columns} sample @param {number} length seconds @param {number} step */
export function extended(into, sample, length, step) {
  const [t] = sample.t;
  const latest = into.t.at(-1) ?? 0;
  if (t < latest + step) return into;
  const first = into.t.findIndex((time) => time > t - length);
  const from = first < 0 ? into.t.length : first;
  const names = new Set([...Object.keys(into), ...Object.keys(sample)]);
  return Object.fromEntries([...names].map((name) => {
    const column = into[name] ?? new Array(into.t.length).fill(null);
    return [name, [...column.slice(from), sample[name]?.[0] ?? null]];
  }));
}

/** Follow the figures while somebody is signed in. @returns {() => void} */
export function followSeries() {
  const end = new AbortController();
  load('5m', end.signal).then((loaded) => {
    recent.value = loaded;
    if (shown === '5m') columns.value = loaded;
  }, () => undefined); // the strip at the top says that the node does not answer
  const stop = follow({
    topic: 'series',
    on: (news) => {
      if (news.projects) rates.value = news.projects;
      if (!news.names) return;
      const sample = byName(news);
      recent.value = extended(recent.value, sample, 300, 1);
      const [length, step] = RANGES[shown];
      columns.value = shown === '5m' ? recent.value : extended(columns.value, sample, length, step);
    },
  });
  return () => {
    stop();
    end.abort();
  };
}
