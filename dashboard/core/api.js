// @ts-check
/** Requests to the node's management interface. */
import { Unreachable, ask } from './node_state.js';
import { expired, keep, session, sessionOf } from './session.js';

const BASE = '/srv-applet-mgr/v0';

/** A request that the node refused. `key` is explained in docs/reference/errors.md. */
class Refused extends Error {
  /** @param {number} status @param {any} body */
  constructor(status, body) {
    const fields = (body?.fields ?? []).map((/** @type {any} */ f) => `${f.field}: ${f.msg}`);
    super([[body?.msg, body?.desc].filter(Boolean).join(': ') || `HTTP ${status}`, ...fields].join(' – '));
    this.status = status;
    this.key = body?.key ?? '';
  }
}

/** Whether the same request may succeed a little later: the node is late, is starting, or has too much to do. @param {any} error */
export const mayPass = (error) => error instanceof Unreachable || error.status === 429 || error.status >= 500;

/**
 * @typedef {object} Options
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 * @property {boolean} [blob] the answer is a file
 * @property {boolean} [noLogin] sent without the token of the login
 * @property {boolean} [once] a refused token is an error, and no reason to sign in again
 */
/**
 * @typedef {object} Content what a route takes; api.d.ts says it for each
 * @property {unknown} [body] sent as JSON
 * @property {Values} [query] empty values are left out, lists repeat their key
 * @property {FormData} [form]
 */

/** The address of a route. @param {string} path @param {Values} [query] */
function address(path, query = {}) {
  const url = new URL(BASE + path, location.origin);
  for (const [name, value] of Object.entries(query))
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== '' && one !== false && one != null) url.searchParams.append(name, String(one));
  return url;
}

/** @param {string} method @param {URL} url @param {Options & Content} options */
function send(method, url, options) {
  /** @type {Record<string, string>} */
  const headers = { ...options.headers };
  if (session.value && !options.noLogin) headers.Authorization = `Bearer ${session.value.token}`;
  const body = options.form ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
  return ask(url, { method, headers, body, signal: options.signal }, { patient: !!options.form || !!options.blob, blob: options.blob });
}

/**
 * Send a request and return its decoded answer. When the node refuses the token, the page asks for
 * the password and sends the request again, so nothing that was typed is lost.
 * @param {string} method @param {string} path below the prefix @param {Options & Content} [options]
 * @returns {Promise<any>} the JSON, null without content, or a Blob
 * @throws {Refused} @throws {Unreachable}
 */
async function request(method, path, options = {}) {
  const url = address(path, options.query);
  const before = session.value;
  const [answer, body] = await send(method, url, options);
  if (answer.status === 401 && before && !options.once && !options.noLogin) {
    await signedInAgain(before);
    return request(method, path, { ...options, once: true });
  }
  if (answer.ok && options.blob) return body;
  let parsed = null;
  try {
    parsed = body ? JSON.parse(body) : null;
  } catch {
    parsed = { msg: body.trim().slice(0, 300) }; // some refusals are plain text
  }
  if (!answer.ok) throw new Refused(answer.status, parsed);
  return parsed;
}

/** A text as a segment of a path. */
export const segment = encodeURIComponent;

// The types of these know each route: its query, its body and its answer. A path is written where it
// is used, or is a constant (`@type {const}`), so that its route can be found.
export const call = /** @type {Api.Calls<Options>} */ (/** @type {unknown} */ (request));
export const get = /** @type {Api.Asks<'GET', Options>} */ (/** @type {unknown} */ (asks('GET')));
export const remove = /** @type {Api.Asks<'DELETE', Options>} */ (/** @type {unknown} */ (asks('DELETE')));
export const post = /** @type {Api.Sends<'POST', Options>} */ (/** @type {unknown} */ (sends('POST')));
export const put = /** @type {Api.Sends<'PUT', Options>} */ (/** @type {unknown} */ (sends('PUT')));

/** @param {string} method */
function asks(method) {
  return (/** @type {string} */ path, /** @type {Values} */ query, /** @type {Options} */ options) => request(method, path, { ...options, query });
}

/** @param {string} method */
function sends(method) {
  return (/** @type {string} */ path, /** @type {unknown} */ body, /** @type {Options} */ options) => request(method, path, { ...options, body });
}

/** Ask for the password over the page, and wait until it was given. @param {any} before */
function signedInAgain(before) {
  if (session.value && session.value.token !== before.token) return Promise.resolve();
  expired.value = true;
  return new Promise((resolve, reject) => {
    const stop = session.subscribe((now) => {
      if (now && now.token === before.token) return;
      queueMicrotask(() => stop());
      if (now) resolve(undefined);
      else reject(new Refused(401, { msg: 'signed out' }));
    });
  });
}

/** Renew the token at half of its life, while the page is used. */
async function renew() {
  const now = session.value;
  if (!now || expired.value || document.hidden || Date.now() < now.renewAt) return;
  keep({ ...now, renewAt: Date.parse(now.expireAt) }, false); // one request at a time
  try {
    keep(sessionOf({ ...now, ...(await call('PUT', '/login/renew', { once: true })) }, now.name));
  } catch (error) {
    // After the longest time for a login only the password helps: the next request asks for it.
    console.warn('the login was not renewed:', error);
  }
}
setInterval(renew, 15_000);

/** End this login at the node and in all tabs. */
export async function signOut() {
  try {
    if (!expired.value) await call('DELETE', '/login', { once: true });
  } finally {
    keep(null);
  }
}
