// @ts-check
/** Words of the events page and of one event's story. */

export const label = 'Events, the newest first';
export const columns = ['Time', 'Type', 'Publisher', 'Handler', 'Size', 'Took', 'Outcome'];
export const type = 'Event type';
export const allTypes = 'All types';
export const publisher = 'Publisher';
export const allPublishers = 'All publishers';
export const outcome = 'Outcome';
export const allOutcomes = 'All outcomes';
export const outcomes = { ok: 'Succeeded', failed: 'Failed', unhandled: 'No handler', duplicate: 'Duplicate' };
export const source = 'Source';
export const allSources = 'All sources';
export const sources = { http: 'HTTP', mqtt: 'MQTT', cron: 'Cron', chain: 'Chain', api: 'API calls' };
export const from = 'From';
export const until = 'Until';
export const anyTime = 'Any time';
export const between = 'Chosen times';
export const clear = 'Clear filters';
export const none = 'No events yet';
export const noneHint = 'Send one from the console, or connect a publisher.';
export const noneFound = 'No event matches these filters';
export const toConsole = 'Open the console';
export const ok = 'ok';
export const duplicate = 'duplicate';
export const noHandler = 'no handler';
export const eventOf = (/** @type {string} */ time) => `Event of ${time}`;

export const story = 'Event';
export const openPage = 'Open as a page';
export const gone = 'This event is no longer kept';
export const goneHint = 'The history keeps the newest events only; the setting history_bytes says how many.';
export const received = 'Received';
export const over = 'over';
export const by = 'from';
export const ofType = 'type';
export const payload = 'Payload';
export const payloadGone = 'The payload is no longer kept.';
export const noPayload = 'It has no payload.';
export const bytesShown = 'binary, as hexadecimal';
export const matched = 'Matched';
/** @param {number} n */
export const strategies = (n) => (n === 1 ? 'one strategy' : `${n} strategies`);
export const nothingHandles = (/** @type {string} */ type) => `Nothing handles ${type}`;
export const addStrategy = 'Add a strategy';
export const ran = 'Ran';
export const failed = 'Failed';
export const refused = 'Refused';
export const version = (/** @type {number | string} */ v) => `version ${v}`;
export const returned = 'returned';
export const logged = 'Logged';
export const wrote = 'Wrote';
export const notTraced = 'What handlers write is recorded only while a trace is on.';
export const traceGone = 'The trace of this event has made room for newer ones.';
export const traceNext = 'Trace the next 100 events';
export const tracing = 'Tracing the next 100 events for 10 minutes';
export const sent = 'Sent';
export const to = 'to';
export const transaction = 'Transaction';
export const onChain = (/** @type {number} */ id) => `on chain ${id}`;
export const states = { delivered: 'delivered', refused: 'refused', waiting: 'waiting' };
export const answered = 'Committed and answered';
/** @param {string} took */
export const afterTime = (took) => `after ${took}`;
/** @param {string} bytes */
export const withMemory = (bytes) => `with ${bytes} of memory`;
export const again = 'This is a duplicate: it was answered from the stored result, and no handler ran.';
export const runAgain = 'Run again';
export const ranAgain = 'The event ran again';
export const notAgain = 'The event cannot run again: its payload is no longer kept, or nothing handles its type';
export const tryVersion = 'Try on another version';
export const asCurl = 'As curl';
export const toLetters = 'Dead letters';
export const traced = 'traced';
