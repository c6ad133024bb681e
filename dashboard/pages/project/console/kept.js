// @ts-check
/** What the console keeps while the page is open: a draft and the last events, by project. */
import { signal } from '../../../vendor/preact.js';

export const LIMIT = 20;

/**
 * @typedef {object} Draft
 * @property {string} publisherID
 * @property {string} type
 * @property {string} text
 * @property {'text' | 'base64'} encoding
 * @property {'http' | 'mqtt' | 'dry'} way
 */

/**
 * @typedef {object} Entry one event that was sent, or one dry run
 * @property {number} number
 * @property {number} at Unix milliseconds
 * @property {Draft} draft
 * @property {number} ms
 * @property {string} [eventID]
 * @property {any} [results] of the handlers
 * @property {any} [report] of a dry run
 * @property {any} [error] why it was refused
 */

/** @type {Map<string, {draft?: Draft, entries: Signal<Entry[]>}>} */
const projects = new Map();
let last = 0;

/** @param {string} project */
export function keptOf(project) {
  const known = projects.get(project) ?? { entries: signal(/** @type {Entry[]} */ ([])) };
  projects.set(project, known);
  return known;
}

/** @param {string} project @param {Omit<Entry, 'number'>} entry @returns {Entry} */
export function keep(project, entry) {
  const { entries } = keptOf(project);
  const numbered = { ...entry, number: ++last };
  entries.value = [numbered, ...entries.value].slice(0, LIMIT);
  return numbered;
}

/** Whether an entry went well: null when nothing ran. @param {Entry} entry @returns {boolean | null} */
export function outcomeOf({ error, results, report }) {
  if (error) return false;
  if (report) return report.code >= 0 && report.error === '';
  if (!results?.length) return null;
  return results.every((/** @type {any} */ one) => one.code >= 0);
}
