// @ts-check
/** The node's own log: the last lines of all processes, followed. */
import { html, useEffect, useState } from '../../vendor/preact.js';
import { get } from '../../core/api.js';
import { clock, utc } from '../../core/format.js';
import { filter, query } from '../../core/route.js';
import { Badge, Card, Empty, Heading, Icon, Problem, Table, Waiting } from '../../parts/basics.js';
import * as words from '../../words/en/node_log.js';

const KEPT = 5000;
const SHOWN = 500;
const PAGE = 1000;
const EVERY_MS = 1500;
const COLUMNS = /** @type {[string, string?][]} */ ([[words.columns.time], [words.columns.level], [words.columns.process], [words.columns.text]]);

/** The last lines, and newer ones while it is followed. @param {string} level @param {boolean} following */
function useLines(level, following) {
  const [state, set] = useState(/** @type {{lines: any[] | null, next: string, error?: any}} */ ({ lines: null, next: '' }));
  const [round, again] = useState(0);
  useEffect(() => {
    const end = new AbortController();
    let timer = 0;
    let next = '';
    let lines = /** @type {any[]} */ ([]);
    const load = async () => {
      try {
        // @ts-expect-error The route is not there yet: remove this line when it is.
        const answer = /** @type {any} */ (await get('/node_log', { level, limit: PAGE, after: next || -PAGE }, { signal: end.signal }));
        lines = [...lines, ...answer.data].slice(-KEPT);
        next = answer.next;
        set({ lines, next });
      } catch (error) {
        if (end.signal.aborted) return;
        set((old) => ({ ...old, error }));
      }
      if (following && !end.signal.aborted) timer = window.setTimeout(load, document.hidden ? EVERY_MS * 4 : EVERY_MS);
    };
    load();
    return () => {
      clearTimeout(timer);
      end.abort();
    };
  }, [level, following, round]);
  return { ...state, again: () => again((n) => n + 1) };
}

/** @param {{row: any}} p */
const Row = ({ row }) => html`<tr><td class="mono dim nowrap"><time dateTime=${row.time} title=${utc(row.time)}>${clock(row.time)}</time></td><td><${Badge} kind=${words.kinds[row.level] ?? ''}>${row.level.toLowerCase()}</${Badge}></td>
  <td class="dim nowrap">${row.process}</td><td class="wrap"><pre class="log-text">${row.text}</pre></td></tr>`;

export function Page() {
  const { level = '', find = '', pause = '' } = query.value;
  const { lines, error, again } = useLines(level, !pause);
  const wanted = find.toLowerCase().split(' ').filter(Boolean);
  const found = (lines ?? []).filter((row) => wanted.every((word) => `${row.process} ${row.text}`.toLowerCase().includes(word))).reverse();
  const content = () => {
    if (!lines) return error ? html`<${Problem} error=${error} again=${again} />` : html`<${Waiting} rows=${8} />`;
    return found.length ? html`<${Table} label=${words.title} columns=${COLUMNS}>${found.slice(0, SHOWN).map((row) => html`<${Row} key=${row.sequence} row=${row} />`)}</${Table}>` : html`<${Empty} title=${words.none} icon="list">${words.noneHint}</${Empty}>`;
  };
  return html`<div class="page"><${Heading} title=${words.title} text=${words.text}><button type="button" aria-pressed=${!pause} onClick=${() => filter({ pause: !pause })}><${Icon} name=${pause ? 'play' : 'pause'} />${pause ? words.follow : words.pause}</button></${Heading}>
    <${Card}><div class="filters"><input type="search" class="find" aria-label=${words.find} placeholder=${words.find} defaultValue=${find} onInput=${(/** @type {any} */ e) => filter({ find: e.target.value })} />
      <select aria-label=${words.level} value=${level} onChange=${(/** @type {any} */ e) => filter({ level: e.target.value })}>${Object.entries(words.levels).map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>
      <span class="grow"></span><span class="hint">${lines && words.lines(found.length)}</span></div>${content()}</${Card}></div>`;
}
