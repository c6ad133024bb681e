// @ts-check
/** A live list: it opens with the last rows, follows the stream, and stands still under the pointer. */
import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { patiently } from '../core/load.js';
import { follow } from '../core/stream.js';
import { count, rate } from '../core/format.js';
import { Tail } from '../core/tail.js';
import { Do } from './basics.js';
import * as words from '../words/en/live.js';

const REDRAW_MS = 100;
const ANNOUNCE_MS = 10_000;

/**
 * @param {{topic: 'events' | 'logs', project: string, filter: Values, key: (row: any) => string,
 *   load: (before: string, signal?: AbortSignal) => Promise<{data: any[], next?: string, newest?: string}>, live: boolean}} what
 *   load: rows older than a key, the newest first, and the newest there is, listed or not; live: follow the stream too
 */
export function useTail({ topic, project, filter, key, load, live }) {
  const tail = useRef(/** @type {Tail} */ (/** @type {any} */ (null)));
  const [state, set] = useState({ drawn: 0, next: '', loaded: false, error: /** @type {Error | undefined} */ (undefined) });
  const [round, again] = useState(0);
  const [paused, pause] = useState(false);
  const [held, hold] = useState(false);
  const [top, onTop] = useState(true);
  const name = JSON.stringify([topic, project, filter, live]);
  useEffect(() => {
    const end = new AbortController();
    const own = new Tail(key);
    tail.current = own;
    let timer = 0;
    let stop = () => {};
    set({ drawn: 0, next: '', loaded: false, error: undefined });
    const draw = () => {
      timer ||= window.setTimeout(() => {
        timer = 0;
        set((old) => ({ ...old, drawn: old.drawn + 1 }));
      }, REDRAW_MS);
    };
    const listen = (/** @type {string | undefined} */ after) => {
      stop = follow({ topic, project, filter, after, on: (news) => {
        own.add(news, performance.now());
        draw();
      } });
    };
    patiently(() => load('', end.signal), end.signal, (error) => set((old) => ({ ...old, error }))).then(({ data, next = '', newest }) => {
      if (end.signal.aborted) return;
      own.fill(data);
      set({ drawn: 1, next, loaded: true, error: undefined });
      if (live) listen(newest);
    }, () => undefined);
    return () => {
      end.abort();
      stop();
      clearTimeout(timer);
    };
  }, [name, round]);
  tail.current ??= new Tail(key);
  tail.current.hold((paused || held || !top) && tail.current.rows.length > 0);
  const older = async () => {
    const own = tail.current;
    const { data, next = '' } = await load(state.next);
    own.extend(data);
    set((old) => ({ ...old, drawn: old.drawn + 1, next }));
  };
  const resume = () => {
    pause(false);
    hold(false);
    onTop(true);
    document.querySelector('.rows .scroll')?.scrollTo(0, 0);
  };
  return { tail: tail.current, ...state, again: () => again(round + 1), paused, pause, hold, onTop, older, resume };
}

/** Pause, what came, and what is not listed. @param {{live: ReturnType<typeof useTail>}} p */
export function Counts({ live }) {
  const { tail } = live;
  const now = tail.rate(performance.now());
  return html`<output class="counts"><b>${rate(now)}</b>${words.perSecond} <span class="dim">·</span> <b>${count(tail.total)}</b> ${words.seen}${tail.leftOut > 0 && html` <span class="dim">·</span> <span title=${words.thinned}><b>${count(tail.leftOut)}</b> ${words.notListed}</span>`}${tail.failed > 0 && html` <span class="dim">·</span> <b class="error">${count(tail.failed)}</b> ${words.failed}`}</output><${Announcer} tail=${tail} />`;
}

/** @param {{live: ReturnType<typeof useTail>}} p */
export const PauseButton = ({ live }) => html`<${Do} icon=${live.paused ? 'play' : 'pause'} aria-keyshortcuts="p" onClick=${() => (live.paused ? live.resume() : live.pause(true))}>${live.paused ? words.goOn : words.pause}<//>`;

/** How many rows came while the list stood still. @param {{live: ReturnType<typeof useTail>}} p */
export const Newer = ({ live }) => (live.tail.newer > 0 ? html`<button type="button" class="pill" onClick=${live.resume}>${words.newer(count(live.tail.newer))}</button>` : null);

/** Counts for screen readers, not with each row. @param {{tail: Tail}} p */
function Announcer({ tail }) {
  const [text, set] = useState('');
  useEffect(() => {
    let said = tail.total;
    const timer = setInterval(() => {
      if (tail.total !== said) set(words.announce(count(tail.total - said), count(tail.failed)));
      said = tail.total;
    }, ANNOUNCE_MS);
    return () => clearInterval(timer);
  }, [tail]);
  return html`<span class="hidden" role="status">${text}</span>`;
}
