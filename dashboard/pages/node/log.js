// @ts-check
/** The node's own log: the last lines of all processes, followed. */
import { html, useEffect, useState } from '../../vendor/preact.js';
import { get } from '../../core/api.js';
import { levelKind, moment, quoted, utc } from '../../core/format.js';
import { filter, query } from '../../core/route.js';
import { Badge, Card, Do, Empty, Failed, Heading, Problem, Table, Waiting, typed } from '../../parts/basics.js';
import { AsCommand } from '../../parts/code.js';
import * as words from '../../words/en/node_log.js';

const KEPT = 5000;
const SHOWN = 500;
const PAGE = 1000;
const EVERY_MS = 1500;
const COLUMNS = [words.columns.time, words.columns.level, words.columns.process, words.columns.text];

/** @typedef {{level: string, contains: string, process: string}} Filters as the route takes them */

/** The last lines, and newer ones while it is followed. @param {Filters} wanted @param {boolean} following */
function useLines(wanted, following) {
  const [state, set] = useState(/** @type {{lines: any[] | null, next: string, error?: any}} */ ({ lines: null, next: '' }));
  const [round, again] = useState(0);
  useEffect(() => {
    const end = new AbortController();
    let timer = 0;
    let next = '';
    let lines = /** @type {any[]} */ ([]);
    const load = async () => {
      try {
        const answer = await get('/node_log', { ...wanted, limit: PAGE, after: next || -PAGE }, { signal: end.signal });
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
  }, [JSON.stringify(wanted), following, round]);
  return { ...state, again: () => again((n) => n + 1) };
}

/** @param {{row: any}} p */
const Row = ({ row }) => html`<tr class="log-line"><td class="mono dim nowrap"><time dateTime=${row.time} title=${utc(row.time)}>${moment(row.time)}</time></td><td><${Badge} kind=${levelKind(row.level)}>${row.level.toLowerCase()}<//></td>
  <td class="nowrap"><button type="button" class="link" onClick=${() => filter({ process: row.process })}>${row.process}</button></td><td class="wrap"><pre class="log-text" title=${row.logger}>${row.text}</pre></td></tr>`;

/** What the page shows, as a command. @param {Filters} wanted @param {boolean} following */
const command = ({ level, contains, process }, following) => ['fieldbrook node-log', level && `--level ${level}`, contains && `--contains ${quoted(contains)}`, process && `--process ${quoted(process)}`, following && '--follow'].filter(Boolean).join(' ');

export function Page() {
  const { level = '', contains = '', process = '', pause = '' } = query.value;
  const wanted = { level, contains, process };
  const { lines, error, again } = useLines(wanted, !pause);
  const found = [...(lines ?? [])].reverse();
  const text = (/** @type {'contains' | 'process'} */ name, /** @type {string} */ label) => html`<input type="search" class="find" key=${name + wanted[name]} aria-label=${label} placeholder=${label} defaultValue=${wanted[name]} onChange=${typed((v) => filter({ [name]: v }))} />`;
  const content = () => {
    if (!lines) return error ? html`<${Problem} error=${error} again=${again} />` : html`<${Waiting} rows=${8} />`;
    return html`<${Failed} of=${{ error, again }} />${found.length ? html`<${Table} label=${words.title} columns=${COLUMNS}>${found.slice(0, SHOWN).map((row) => html`<${Row} key=${row.sequence} row=${row} />`)}<//>` : html`<${Empty} title=${words.none} icon="list">${words.noneHint}<//>`}`;
  };
  return html`<div class="page"><${Heading} title=${words.title} text=${words.text}><${Do} icon=${pause ? 'play' : 'pause'} onClick=${() => filter({ pause: !pause })}>${pause ? words.follow : words.pause}<//><//>
    <${Card}><div class="filters">${text('contains', words.contains)}${text('process', words.ofProcess)}
      <select aria-label=${words.level} value=${level} onChange=${typed((v) => filter({ level: v }))}>${Object.entries(words.levels).map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>
      <span class="grow"></span><span class="hint">${lines && words.lines(found.length, SHOWN)}</span></div>${content()}<//><${AsCommand} text=${command(wanted, !pause)} /></div>`;
}
