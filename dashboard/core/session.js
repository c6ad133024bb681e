// @ts-check
/** Who is signed in: the token of a login, kept in this tab. */
import { signal } from '../vendor/preact.js';

const KEY = 'fieldbrook.session';

/**
 * @typedef {object} Session
 * @property {string} token
 * @property {string} accountID
 * @property {string} accountRole ADMIN or DEVELOPER
 * @property {string} expireAt RFC 3339
 * @property {number} renewAt Unix milliseconds: half of the token's life
 * @property {string} name what the page shows: a username, or a short address
 */

/** @type {Signal<Session | null>} */
export const session = signal(restore());

/** True while the node refuses the token and the dialog asks for the password again. */
export const expired = signal(false);

// The token lives in sessionStorage, which belongs to one origin, port included, and ends with the
// tab. A cookie would also be sent to other programs on other ports of this host. Tabs of the same
// origin may ask each other for it.
const tabs = new BroadcastChannel('fieldbrook');
tabs.onmessage = ({ data }) => {
  if (data.ask && session.value && !expired.value) tabs.postMessage({ session: session.value });
  else if (data.session && (!session.value || expired.value)) keep(data.session, false);
  else if (data.end) keep(null, false);
};
if (!session.value) tabs.postMessage({ ask: true });

/** @returns {Session | null} */
function restore() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY) ?? 'null');
    return kept && Date.parse(kept.expireAt) > Date.now() ? kept : null;
  } catch {
    return null; // not JSON: something else wrote under this key
  }
}

/**
 * Keep a login in this tab and tell the other tabs; null ends it in all of them.
 * @param {Session | null} value @param {boolean} [tell]
 */
export function keep(value, tell = true) {
  session.value = value;
  expired.value = false;
  if (value) sessionStorage.setItem(KEY, JSON.stringify(value));
  else sessionStorage.removeItem(KEY);
  if (tell) tabs.postMessage(value ? { session: value } : { end: true });
}

/** A session from the node's answer to a login. @param {any} login @param {string} name @returns {Session} */
export function sessionOf(login, name) {
  const now = Date.now();
  return { ...login, name, renewAt: now + (Date.parse(login.expireAt) - now) / 2 };
}

/** Whether the signed-in account administers the node. */
export const isAdmin = () => session.value?.accountRole === 'ADMIN';
