// @ts-check
/** What the page notices of the node: whether it answers, how fast, and whether it serves another page. */
import { signal } from '../vendor/preact.js';

const SLOW_MS = 5_000;
const SILENT_MS = 30_000; // requests without an upload; the node itself answers within 15 s
const LOOK_MS = 60_000;

/** False from the first request that gets no answer until the next one that does. */
export const online = signal(true);
/** True while a request waits for longer than five seconds. */
export const slow = signal(false);
/** True when the node serves the files of another version than this page is of. */
export const upgraded = signal(false);

let late = 0;

/**
 * Send a request to the node, read the answer, and notice how it went.
 * @param {URL | string} url @param {RequestInit} [options] @param {{patient?: boolean, blob?: boolean}} [how]
 *   patient: an upload or a download, without a time limit; blob: the answer is a file, unless it is a refusal
 * @returns {Promise<[Response, any]>} the body is a text or a Blob
 * @throws {TypeError | DOMException} it got no answer, or a part of one
 */
export async function ask(url, options = {}, { patient = false, blob = false } = {}) {
  const limit = AbortSignal.timeout(SILENT_MS);
  const given = options.signal ?? undefined;
  const signals = [...(given ? [given] : []), ...(patient ? [] : [limit])];
  let counted = false;
  const timer = setTimeout(() => {
    counted = true;
    slow.value = ++late > 0;
  }, SLOW_MS);
  try {
    const answer = await fetch(url, { ...options, signal: AbortSignal.any(signals), credentials: 'omit', cache: 'no-store' });
    online.value = true;
    return [answer, await (answer.ok && blob ? answer.blob() : answer.text())];
  } catch (error) {
    if (!given?.aborted) online.value = false;
    throw error;
  } finally {
    clearTimeout(timer);
    if (counted) slow.value = --late > 0;
  }
}

// The page's own files lie below /ui/<digest of all of them>/.
const [own] = new URL(import.meta.url).pathname.match(/^\/ui\/[0-9a-f]+\//) ?? ['/ui/'];

/** Look whether the node serves another page. */
async function lookForUpgrade() {
  if (document.hidden) return;
  try {
    const [, page] = await ask('/');
    upgraded.value = !page.includes(own);
  } catch {
    // `ask` has noticed that the node does not answer
  }
}
setInterval(lookForUpgrade, LOOK_MS);
let was = true;
online.subscribe((now) => {
  if (now && !was) lookForUpgrade(); // the node was away: perhaps for an upgrade
  was = now;
});
