// @ts-check
/** What the page notices of the node: whether it answers, how fast, and whether it serves another page. */
import { signal } from '../vendor/preact.js';
import { unreachable } from '../words/en/common.js';

const SLOW_MS = 5_000;
const SILENT_MS = 30_000; // requests without an upload; the node itself answers within 15 s
const LOOK_MS = 60_000;

/** False from the first request that gets no answer until the next one that does. */
export const online = signal(true);
/** True while a request waits for longer than five seconds. */
export const slow = signal(false);
/** True when the node serves the files of another version than this page is of. */
export const upgraded = signal(false);

const early = /** @type {Record<string, Promise<Response>>} */ (/** @type {any} */ (window).early ?? {}); // see first.js
let late = 0;

/** The node did not answer. */
export class Unreachable extends Error {
  constructor() {
    super(unreachable);
  }
}

/** Notice when something takes long, until the returned function is called. */
function watch() {
  let counted = false;
  const timer = setTimeout(() => {
    counted = true;
    slow.value = ++late > 0;
  }, SLOW_MS);
  return () => {
    clearTimeout(timer);
    if (counted) slow.value = --late > 0;
  };
}

/**
 * Send a request to the node, read the answer, and notice how it went.
 * @param {URL | string} url @param {RequestInit} [options] @param {{patient?: boolean, blob?: boolean}} [how]
 *   patient: an upload or a download, without a time limit; blob: the answer is a file, unless it is a refusal
 * @returns {Promise<[Response, any]>} the body is a text or a Blob
 * @throws {Unreachable} it got no answer, or a part of one
 * @throws {DOMException} the caller ended it
 */
export async function ask(url, options = {}, { patient = false, blob = false } = {}) {
  const limit = AbortSignal.timeout(SILENT_MS);
  const given = options.signal ?? undefined;
  const signals = [...(given ? [given] : []), ...(patient ? [] : [limit])];
  const ended = watch();
  try {
    const { [String(url)]: asked } = early;
    delete early[String(url)]; // the next one asks anew
    const answer = await (asked ?? fetch(url, { ...options, signal: AbortSignal.any(signals), credentials: 'omit', cache: 'no-store' }));
    online.value = true;
    return [answer, await (answer.ok && blob ? answer.blob() : answer.text())];
  } catch (error) {
    if (given?.aborted) throw error;
    online.value = false;
    throw new Unreachable();
  } finally {
    ended();
  }
}

/**
 * Load files of the page, and notice how that goes. A browser does not say why it failed: the node
 * is asked, and when it answers the files are loaded once more.
 * @template T @param {() => Promise<T>} load imports modules, or waits for style sheets
 * @returns {Promise<T>}
 * @throws {Unreachable}
 */
export async function loadFiles(load) {
  const ended = watch();
  try {
    return await load();
  } catch {
    await lookForUpgrade();
    return await load();
  } finally {
    ended();
  }
}

// The page's own files lie below /ui/<digest of all of them>/.
const [own] = new URL(import.meta.url).pathname.match(/^\/ui\/[0-9a-f]+\//) ?? ['/ui/'];

/** Look whether the node serves another page. */
async function lookForUpgrade() {
  const [, page] = await ask('/');
  upgraded.value = !page.includes(own);
}

/** The same, where nothing waits for it: `ask` notices that the node does not answer. */
const glance = () => lookForUpgrade().catch(() => undefined);
setInterval(() => document.hidden || glance(), LOOK_MS);

/** Call `back` when the node answers again. @param {() => unknown} back */
export function onReturn(back) {
  let was = online.value;
  return online.subscribe((now) => {
    if (now && !was) back();
    was = now;
  });
}
onReturn(glance); // perhaps it was away for an upgrade
