// @ts-check
/** Search by Ctrl K: pages by name at once, and what the node finds. */
import { html, useState } from './vendor/preact.js';
import { useLoad } from './core/load.js';
import { go, to } from './core/route.js';
import { Failed } from './parts/basics.js';
import { Dialog } from './parts/dialog.js';
import * as words from './words/en/shell.js';

const LIMIT = 12;
const PAUSE_MS = 120; // between the last key and the question to the node

/** @typedef {{text: string, hint: string, href: string}} Found */

/** Pages whose names contain all words of the text. @param {Api.ProjectRow[]} projects @param {string[][]} node @param {string} text @returns {Found[]} */
function pages(projects, node, text) {
  const wanted = text.toLowerCase().split(' ').filter(Boolean);
  const known = [
    { text: words.overview, hint: words.page, href: '/' },
    { text: words.projects, hint: words.page, href: '/projects' },
    ...projects.flatMap(({ projectName: name }) => Object.entries(words.projectPages).map(([page, title]) => ({ text: `${name} · ${title}`, hint: words.page, href: to('projects', name, page) }))),
    ...node.map(([page, title]) => ({ text: title, hint: words.page, href: to('node', page) })),
  ];
  return known.filter((one) => wanted.every((word) => one.text.toLowerCase().includes(word)));
}

/** @typedef {'project' | 'applet' | 'publisher' | 'event' | 'transaction' | 'operator' | 'monitor'} Kind */

const TABS = { project: 'flow', applet: 'applets', publisher: 'publishers', event: 'events', transaction: 'transactions', operator: 'transactions', monitor: 'triggers' };
const FILTERED = new Set(['publisher', 'transaction', 'operator']); // their pages have a filter by name

/** The page of what the node found. @param {{kind: Kind, name: string, project?: string, id: string}} one @returns {Found} */
function pageOf({ kind, name, project, id }) {
  const hint = words.kinds[kind];
  if (!project) return { text: name, hint, href: '/node/chains' }; // an operator without projects
  const rest = kind === 'event' ? [id] : [];
  const mark = FILTERED.has(kind) ? `?find=${encodeURIComponent(name)}` : '';
  return { text: kind === 'project' ? name : `${project} · ${name}`, hint, href: to('projects', project, TABS[kind], ...rest) + mark };
}

/** @param {{projects: Api.ProjectRow[], node: string[][], onClose: () => void}} p */
export function Search({ projects, node, onClose: close }) {
  const [text, type] = useState('');
  const [at, move] = useState(0);
  const asked = text.trim();
  const answers = useLoad(async (get, signal) => {
    if (asked.length < 2) return [];
    await new Promise((go) => setTimeout(go, PAUSE_MS));
    return signal.aborted ? [] : (await get('/search', { q: asked })).data.map(/** @type {(one: any) => Found} */ (pageOf));
  }, [asked]);
  const found = [...(answers.data ?? []), ...pages(projects, node, text)].slice(0, LIMIT);
  const pick = (/** @type {number} */ i) => {
    if (!found[i]) return;
    close();
    setTimeout(() => go(found[i].href)); // after the dialog has given the focus back
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'ArrowDown') move(Math.min(at + 1, found.length - 1));
    else if (event.key === 'ArrowUp') move(Math.max(at - 1, 0));
    else if (event.key === 'Enter') pick(at);
    else return;
    event.preventDefault();
  };
  const input = (/** @type {any} */ event) => {
    type(event.target.value);
    move(0);
  };
  return html`<${Dialog} title=${words.search} onClose=${close} kind="search-dialog">
    <input autofocus placeholder=${words.searchHint} role="combobox" aria-label=${words.search} aria-expanded="true" aria-controls="found" aria-activedescendant=${found.length ? `found-${at}` : undefined} spellcheck=${false} onInput=${input} onKeyDown=${key} />
    <ul id="found" role="listbox" aria-label=${words.searchResults}>${found.map((one, i) => html`<li id=${`found-${i}`} role="option" aria-selected=${i === at} onClick=${() => pick(i)} onMouseMove=${() => move(i)}><span>${one.text}</span><small>${one.hint}</small></li>`)}</ul>
    <${Failed} of=${answers} /><p class="hint">${found.length ? words.keysHint : words.nothingFound}</p><//>`;
}
