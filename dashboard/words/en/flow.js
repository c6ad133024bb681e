// @ts-check
/** Words of the flow: where the events of a project come from and what they cause. */
import { ago, count, rate } from '../../core/format.js';

export const title = 'What happens to events';
export const picture = 'Picture of the flow';
export const columns = { sources: 'Sources', types: 'Event types', applets: 'Applets', effects: 'Effects' };
export const table = { type: 'Event type', from: 'From', events: 'Events/s', recent: 'Last 5 min', failed: 'Failed', handler: 'Handler', applet: 'Applet' };
/** @param {number} events @param {number} failed */
export const summary = (events, failed) => `${count(events)} events in the last 5 minutes${failed ? `, ${count(failed)} failed` : ''}`;
export const quiet = 'No events in the last 5 minutes';
/** @param {number} value per second */
export const perSecond = (value) => (value < 0.05 ? '<0.1/s' : `${rate(value)}/s`);
/** @param {number} n */
export const inFive = (n) => `${count(n)} in 5 min`;
/** @param {number} n */
export const failed = (n) => `${count(n)} failed`;
export const legend = { live: 'events', bad: 'failed in the last 5 minutes', idle: 'no events, or no handler' };

export const api = 'answers of APIs';
export const command = 'sent by an account';
export const cron = 'cron job';
/** @type {Record<string, string>} */
export const monitors = { contract_log: 'contract log', chain_tx: 'transaction', chain_height: 'block height' };
/** @param {string} kind @param {number} chain */
export const monitor = (kind, chain) => `${monitors[kind]}, chain ${chain}`;
/** @type {Record<string, string>} */
export const otherSources = { http: 'HTTP', mqtt: 'MQTT', cron: 'Cron jobs', chain: 'Chains', api: 'API calls' };
export const removed = 'removed';
/** @param {string | null | undefined} at */
export const lastSeen = (at) => `last event ${ago(at)}`;
export const noEvents = 'no events yet';
export const unhandled = 'no handler';
/** @param {number} n */
export const handlers = (n) => (n === 1 ? '1 handler' : `${n} handlers`);
/** @param {number} version @param {string} state */
export const version = (version, state) => `v${version} · ${state.toLowerCase()}`;
export const dead = 'not in the module';
/** @type {Record<string, [string, string]>} name and hint of each effect */
export const effects = {
  kv: ['Key-value store', 'with the commit'], sql: ['SQL database', 'with the commit'],
  mqtt: ['MQTT messages', 'after the commit'], chain: ['Transactions', 'after the commit'],
  api: ['API calls', 'after the commit'], metrics: ['Metrics', 'of the applets'], log: ['Logs', 'written by handlers'],
};
/** @param {number} delivered @param {number} waiting */
export const sent = (delivered, waiting) => [`${count(delivered)} in 5 min`, waiting ? `${count(waiting)} waiting` : ''].filter(Boolean).join(', ');
/** @param {number} n */
export const refusedSends = (n) => `${count(n)} refused in 5 min`;
export const letters = 'Dead letters';
/** @param {number} n */
export const kept = (n) => `${count(n)} kept`;
/** @param {number} n */
export const morePublishers = (n) => `${n} more sources`;
/** @param {number} n */
export const moreTypes = (n) => `${n} more types`;
/** @param {number} n */
export const moreHandlers = (n) => (n === 1 ? '1 more handler' : `${n} more handlers`);
/** @param {number} n */
export const moreApplets = (n) => `${n} more applets`;
export const addPublisher = ['Add publisher', 'it sends events'];
export const addApplet = ['Deploy an applet', 'a module with handlers'];
export const addType = ['Event types', 'of its strategies'];
export const none = 'No event types yet';
export const noneHint = 'An applet with strategies says which event types it handles.';
export const nothing = '–';
