// @ts-check
/** Loading what a page shows, and running what a button does. */
import { useCallback, useEffect, useRef, useState } from '../vendor/preact.js';
import { online } from './node_state.js';
import { say } from '../parts/basics.js';

/**
 * @template [T=any]
 * @typedef {object} Loaded
 * @property {T} [data] the last answer; it stays while a newer one is on its way
 * @property {Error} [error] why the last request failed
 * @property {boolean} loading
 * @property {() => void} again load once more
 */

/**
 * Load data when the page opens, when `inputs` change, when `again` is called, and when the node
 * answers again after it did not.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load @param {unknown[]} inputs
 * @param {number} [every] load again after so many milliseconds, while the page is visible
 * @returns {Loaded<T>}
 */
export function useLoad(load, inputs, every = 0) {
  const [state, set] = useState(/** @type {{data?: T, error?: Error, loading: boolean}} */ ({ loading: true }));
  const [round, setRound] = useState(0);
  const again = useCallback(() => setRound((r) => r + 1), []);
  const known = useRef(inputs);
  const busy = useRef(false);
  useEffect(() => {
    const end = new AbortController();
    busy.current = true;
    const same = known.current.every((value, i) => value === inputs[i]);
    known.current = inputs;
    set((old) => ({ data: same ? old.data : undefined, error: undefined, loading: true }));
    const settle = (/** @type {(old: any) => any} */ next) => {
      if (end.signal.aborted) return;
      busy.current = false;
      set(next);
    };
    load(end.signal).then(
      (data) => settle(() => ({ data, loading: false })),
      (error) => settle((old) => ({ data: old.data, error, loading: false })),
    );
    return () => end.abort();
  }, [...inputs, round]);
  useEffect(() => {
    // A request that takes longer than the interval is waited for.
    const timer = every ? setInterval(() => document.hidden || busy.current || again(), every) : 0;
    let was = online.value;
    const stop = online.subscribe((now) => {
      if (now && !was) again();
      was = now;
    });
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
