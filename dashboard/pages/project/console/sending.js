// @ts-check
/** Sending the event of the console, and running it dry. */
import { call, post, segment } from '../../../core/api.js';
import { keep } from './kept.js';

/** A new id; long enough that the node would know the event again. */
const newID = () => `console-${[...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`;

/**
 * Send an event as a device would, with the publisher's token in its header.
 * @param {string} project @param {Api.PublisherReply} publisher @param {import('./kept.js').Draft} draft @param {string} payload base64
 */
export async function sendEvent(project, publisher, draft, payload) {
  const eventID = newID();
  const who = publisher.token ? { pub_id: publisher.key, token: publisher.token } : {};
  const header = { ...who, event_type: draft.type, event_id: eventID, pub_time: Date.now() };
  const begun = performance.now();
  const entry = { at: Date.now(), draft, eventID };
  try {
    const body = /** @type {Api.EventMessage} */ ({ header, payload }); // of a public project without publisher and token
    const { results } = /** @type {Api.EventMessageReply} */ (await call('POST', `/event/${segment(project)}`, { body, noLogin: true }));
    return keep(project, { ...entry, results: results ?? [], ms: performance.now() - begun });
  } catch (error) {
    return keep(project, { ...entry, error, ms: performance.now() - begun });
  }
}

/**
 * Run a handler of a version over the payload; nothing is kept.
 * @param {string} project @param {import('./kept.js').Draft} draft @param {string} payload base64
 * @param {import('./ways.js').What} what
 */
export async function dryRun(project, draft, payload, { appletID, handler, version, withState }) {
  const begun = performance.now();
  const entry = { at: Date.now(), draft };
  try {
    const report = await post(`/applet/data/${appletID}/run`, { handler, eventType: draft.type, payload, version, withState });
    return keep(project, { ...entry, report, ms: performance.now() - begun });
  } catch (error) {
    return keep(project, { ...entry, error, ms: performance.now() - begun });
  }
}
