// @ts-check
/** The node's figures over time: loaded once for a range, then one more sample a second. */
import { signal } from '../vendor/preact.js';
import { get } from './api.js';
import { isAdmin } from './session.js';
import { follow } from './stream.js';

/** Ranges of the charts in seconds, with the step of their samples. */
export const RANGES = { '5m': [300, 1], '15m': [900, 1], '3h': [10_800, 10], '24h': [86_400, 60] };

/** @typedef {keyof typeof RANGES} Range */
/** @typedef {Record<string, number[]>} Columns `t` in Unix seconds, and one column for each name; null where nothing was read */

/** @type {Signal<Columns>} */
export const columns = signal({ t: [] });
/** The last five minutes, whatever the charts show. @type {Signal<Columns>} */
export const recent = signal({ t: [] });
/** Events and failed runs per second, by the names of projects. @type {Signal<Record<string, {events: number, failed: number}>>} */
export const rates = signal({});

/** The figures that the overview shows; accounts that do not administer the node have two. */
const OF_PROJECTS = ['events', 'failed'];
const NAMES = [...OF_PROJECTS, 'mqttMessages', 'refused', 'eventP50Ms', 'eventP99Ms', 'commitP50Ms', 'commitP99Ms', 'deadLetters', 'memoryGateways', 'memoryProjects', 'memoryRest'];

let shown = /** @type {Range} */ ('5m');

/** The columns by name; the times come first. @param {Api.SeriesReply} answer */
const byName = (answer) => /** @type {Columns} */ (Object.fromEntries(['t', ...answer.names].map((name, i) => [name, answer.columns[i]])));

/** @param {Range} range @param {AbortSignal} end */
async function load(range, end) {
  const [length, step] = RANGES[range];
  const begin = new Date(Date.now() - length * 1000).toISOString();
  return byName(await get('/series', { step, begin, name: isAdmin() ? NAMES : OF_PROJECTS }, { signal: end }));
}

/** Show a range in the charts. @param {Range} range @param {AbortSignal} end */
export async function show(range, end) {
  const [loaded, latest] = await Promise.all([load(range, end), range === '5m' ? null : load('5m', end)]);
  shown = range;
  columns.value = loaded;
  recent.value = latest ?? loaded;
}

/**
 * Columns with newer samples at their ends, at most one for each step, and without those that are too old.
 * @param {Columns} into @param {Columns} samples @param {number} length seconds @param {number} step seconds
 * @returns {Columns}
 */
function extended(into, samples, length, step) {
  const names = new Set([...Object.keys(into), ...Object.keys(samples)]);
  const columns = Object.fromEntries([...names].map((name) => [name, [...(into[name] ?? new Array(into.t.length).fill(null))]]));
  samples.t.forEach((time, i) => {
    if (time < (columns.t.at(-1) ?? 0) + step * 0.9) return;
    for (const name of names) columns[name].push(samples[name]?.[i] ?? null);
  });
  const newest = columns.t.at(-1) ?? 0;
  const first = columns.t.findIndex((time) => time > newest - length);
  return first > 0 ? Object.fromEntries([...names].map((name) => [name, columns[name].slice(first)])) : columns;
}

/** Follow the figures while somebody is signed in. @returns {() => void} */
export const followSeries = () => follow({
  topic: 'series',
  on: (news) => {
    if (news.projects) rates.value = news.projects;
    if (!news.names) return;
    const samples = byName(news);
    recent.value = extended(recent.value, samples, 300, 1);
    const [length, step] = RANGES[shown];
    columns.value = shown === '5m' ? recent.value : extended(columns.value, samples, length, step);
  },
});
