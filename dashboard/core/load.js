// @ts-check
/** Loading what a page shows, and running what a button does. */
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from '../vendor/preact.js';
import { get, mayPass } from './api.js';
import { onReturn } from './node_state.js';
import { say } from '../parts/basics.js';

const RETRY_MS = [1000, 2000, 5000, 15_000]; // the last one again and again

/**
 * Do something until it succeeds, or fails for a reason that will not pass.
 * @template T @param {() => Promise<T>} work @param {AbortSignal} end @param {(reason: Error) => void} failed is told each reason
 * @returns {Promise<T>}
 */
export async function patiently(work, end, failed) {
  for (let tries = 0; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (end.aborted) throw error;
      failed(/** @type {Error} */ (error));
      if (!mayPass(error)) throw error;
      await new Promise((go) => setTimeout(go, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]));
      if (end.aborted) throw error;
    }
  }
}

/**
 * Load data when the page opens, when `inputs` change, when `again` is called, when the node
 * answers again after it did not, and a little later when it failed for a reason that may pass.
 * @template T
 * @param {(get: Get, signal: AbortSignal) => Promise<T>} load its `get` ends with the page, or when `inputs` change
 * @param {unknown[]} inputs
 * @param {number} [every] load again after so many milliseconds, while the page is visible
 * @returns {Loaded<T>}
 */
export function useLoad(load, inputs, every = 0) {
  const [state, set] = useState(/** @type {{data?: T, error?: Error}} */ ({}));
  const [round, setRound] = useState(0);
  const again = useCallback(() => setRound((r) => r + 1), []);
  const known = useRef(inputs);
  const busy = useRef(false);
  useLayoutEffect(() => { // an effect would wait for a frame
    const end = new AbortController();
    busy.current = true;
    const same = known.current.every((value, i) => value === inputs[i]);
    known.current = inputs;
    if (!same) set({});
    const failed = (/** @type {Error} */ error) => set(({ data }) => ({ data, error }));
    const ask = /** @type {any} */ (get);
    const asked = /** @type {Get} */ ((/** @type {any[]} */ ...[path, query, options]) => ask(path, query, { ...options, signal: end.signal }));
    patiently(() => load(asked, end.signal), end.signal, failed).then((data) => end.signal.aborted || set({ data }), () => undefined).finally(() => {
      if (!end.signal.aborted) busy.current = false;
    });
    return () => end.abort();
  }, [...inputs, round]);
  useEffect(() => {
    // A request that takes longer than the interval is waited for.
    const timer = every ? setInterval(() => document.hidden || busy.current || again(), every) : 0;
    const stop = onReturn(again);
    return () => {
      clearInterval(timer);
      stop();
    };
  }, [every]);
  return { ...state, again };
}

/**
 * Run what may be refused; a refusal is shown with the reason of the node.
 * @template T @param {() => Promise<T>} work @param {string} [done] what to say when it succeeded
 * @returns {Promise<T | undefined>} undefined when it failed
 */
export async function attempt(work, done = '') {
  try {
    const result = await work();
    if (done) say(done);
    return result;
  } catch (error) {
    say(/** @type {Error} */ (error).message, 'bad');
    return undefined;
  }
}
