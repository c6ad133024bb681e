// @ts-check
/** Small parts: icons, badges, buttons that copy, and what a list shows when it has no rows. */
import { html, signal, useEffect, useState } from '../vendor/preact.js';
import * as words from '../words/en/common.js';
import { mayPass } from '../core/api.js';
import { ago, moment, utc } from '../core/format.js';
import { Unreachable } from '../core/node_state.js';

/** @type {Record<string, string>} paths in a box of 24 by 24 */
const ICONS = {
  pulse: 'M2 12h4l3-8 5 16 3-8h5',
  box: 'M12 2.5 3.5 7v10l8.5 4.5 8.5-4.5V7zM3.5 7l8.5 4.5L20.5 7M12 11.5v10',
  chain: 'M9.5 14.5l5-5M8 11l-2.5 2.5a4 4 0 0 0 5 5L13 16M16 13l2.5-2.5a4 4 0 0 0-5-5L11 8',
  heart: 'M12 20.5C5.5 15.5 3 12.5 3 9a4.5 4.5 0 0 1 9-1 4.5 4.5 0 0 1 9 1c0 3.5-2.5 6.5-9 11.5z',
  key: 'M14.5 3.5a6 6 0 1 1-4.8 9.6L3.5 19.3V21h4v-2.5H10V16l1.5-1.5M16 8h.01',
  list: 'M8.5 6H21M8.5 12H21M8.5 18H21M3.5 6h.01M3.5 12h.01M3.5 18h.01',
  gear: 'M4 7h9M19 7h1M4 17h1M11 17h9M16 4.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM8 14.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z',
  search: 'M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM20 20l-4.8-4.8',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M19 5l-1.4 1.4M6.4 17.6 5 19',
  moon: 'M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z',
  play: 'M7 4.5l12 7.5-12 7.5z',
  pause: 'M8 5v14M16 5v14',
  stop: 'M6 6h12v12H6z',
  copy: 'M9 9h11v11H9zM5.5 15H4V4h11v1.5',
  close: 'M6 6l12 12M18 6 6 18',
  upload: 'M12 15.5V4M7 9l5-5 5 5M4 15.5V20h16v-4.5',
  download: 'M12 4v11.5M7 10.5l5 5 5-5M4 15.5V20h16v-4.5',
  back: 'M9 14 4 9l5-5M4 9h10a6 6 0 0 1 0 12h-3',
  wallet: 'M3.5 7.5h16.5v12.5H3.5zM3.5 7.5 15 3.5v4M16 13.5h.01',
  menu: 'M3.5 6h17M3.5 12h17M3.5 18h17',
  send: 'M3.5 11 20.5 3.5 13 20.5l-2-7.5z',
  plus: 'M12 5v14M5 12h14',
  trash: 'M4 6.5h16M9 6.5V4h6v2.5M6 6.5 7 20.5h10l1-14M10 10.5v6M14 10.5v6',
  people: 'M9 4.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM2.5 20a6.5 6.5 0 0 1 13 0M16 5a3.5 3.5 0 0 1 0 6.5M18 14.5a6.5 6.5 0 0 1 3.5 5.5',
  shield: 'M12 2.5 4 6v6c0 5 3.5 8 8 9.5 4.5-1.5 8-4.5 8-9.5V6zM9 12l2 2 4-4',
  ban: 'M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM5.6 5.6l12.8 12.8',
  terminal: 'M4 5h16v14H4zM7.5 9.5l3 2.5-3 2.5M13 15h3.5',
  right: 'M9 5l7 7-7 7',
  down: 'M5 9l7 7 7-7',
  leave: 'M14 4h6v16h-6M10 8l-4 4 4 4M6 12h9',
  book: 'M4 4.5h6a2 2 0 0 1 2 2V20a2 2 0 0 0-2-1.5H4zM20 4.5h-6a2 2 0 0 0-2 2V20a2 2 0 0 1 2-1.5h6z',
  spark: 'M12 3v5M12 16v5M3 12h5M16 12h5M6 6l3 3M15 15l3 3M18 6l-3 3M9 15l-3 3',
  clock: 'M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7.5V12l3 2',
  tag: 'M3.5 12.5V4h8.5l8.5 8.500-8.5 8.5zM8 8h.01',
  qr: 'M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h2v2h-2zM18 14h2M14 18v2M18 18h2v2h-2z',
  edit: 'M4 20h4L19.5 8.5l-4-4L4 16zM13 7l4 4',
};

/** @param {{name: string}} p */
export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${ICONS[name]} /></svg>`;

/** A button that is an icon. @param {{icon: string, label: string, kind?: string, [attribute: string]: any}} p */
export const Mark = ({ icon, label, kind = 'small', ...more }) => html`<button type="button" class=${`ghost ${kind}`} aria-label=${label} ...${more}><${Icon} name=${icon} /></button>`;

/** A button with an icon and a text. @param {{icon: string, children?: any, [attribute: string]: any}} p */
export const Do = ({ icon, children, ...more }) => html`<button type="button" ...${more}><${Icon} name=${icon} />${children}</button>`;

/** A listener for what is typed or chosen. @param {(value: any) => unknown} set */
export const typed = (set) => (/** @type {any} */ event) => set(event.target.value);

/** The same, when the typing has rested. @param {(value: any) => unknown} set @param {number} [rest] milliseconds */
export const typedSlowly = (set, rest = 250) => typed((/** @type {any} */ value) => {
  clearTimeout(resting);
  resting = window.setTimeout(set, rest, value);
});
let resting = 0;

/** The sign of fieldbrook, as in the icon of index.html. @param {{size: number}} p */
export const Logo = ({ size }) => html`<svg class="sign" width=${size} height=${size} viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" /><path d="M7 11c4-4 7 4 11 0s5-2 7 0M7 17c4-4 7 4 11 0s5-2 7 0M7 23c4-4 7 4 11 0s5-2 7 0" /></svg>`;

/** @param {{kind?: '' | 'good' | 'bad' | 'warn' | 'info', children?: any, title?: string}} p */
export const Badge = ({ kind = '', children, title }) => html`<span class=${`badge ${kind}`} title=${title}>${children}</span>`;

/** The first applets of a project, and which of them run. @param {{of: Api.ProjectRow}} p */
export const AppletNames = ({ of: project }) => html`<span class="line">${(project.applets ?? []).slice(0, 6).map((applet) => html`<${Badge} kind=${applet.instanceState === 'STARTED' ? 'good' : ''}>${applet.appletName}<//>`)}</span>`;

/** A time as how long ago it was, with local time and UTC on hover. @param {{at: string | number | null | undefined}} p */
export const Ago = ({ at }) => html`<time dateTime=${utc(at)} title=${at == null ? '' : `${moment(at)} · ${utc(at)}`}>${ago(at)}</time>`;

/** A button that copies text. @param {{text: string, label?: string}} p */
export function Copy({ text, label = words.copy }) {
  const [done, set] = useState('');
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      set(words.copied);
    } catch {
      set(words.notCopied); // no permission, or not a secure context
    }
    setTimeout(() => set(''), 1500);
  };
  return html`<button type="button" class="ghost small copy" onClick=${copy}><${Icon} name="copy" /><span>${done || label}</span></button>`;
}

/** What a list shows when it is empty: a title, and what to do first. @param {{title: string, icon?: string, children?: any}} p */
export const Empty = ({ title, icon = '', children }) => html`<div class="empty">${icon && html`<${Icon} name=${icon} />`}<strong>${title}</strong><div>${children}</div></div>`;

/** Grey rows, from 150 ms on. @param {{rows?: number}} p */
export function Waiting({ rows = 4 }) {
  const [late, set] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => set(true), 150);
    return () => clearTimeout(timer);
  }, []);
  return html`<div class="waiting" role="status" aria-label=${words.loading}>${late && Array.from({ length: rows }, () => html`<i></i>`)}</div>`;
}

/**
 * What to show of a request: grey rows while it is on its way, the reason when it was refused, else
 * the content. What was loaded before stays when newer data cannot be loaded for now.
 * @param {{of: Loaded, rows?: number, children: (data: any) => any}} p
 */
export function Show({ of, rows, children }) {
  const { data, error, again } = of;
  if (error && (data === undefined || !mayPass(error))) return html`<${Problem} error=${error} again=${again} />`;
  return data === undefined ? html`<${Waiting} rows=${rows} />` : html`<${Failed} of=${of} />${children(data)}`;
}

/** Why something was not loaded, beside what is shown without it; a strip at the top tells of a node that does not answer. @param {{of: Loaded}} p */
export const Failed = ({ of: { data, error, again } }) => error && !(error instanceof Unreachable && data !== undefined) && html`<p class="late" role="alert">${words.notLoaded}: ${error.message} <button type="button" class="small" onClick=${again}>${words.tryAgain}</button></p>`;

/** @param {any} error */
const titleOf = (error) => (error.status === 403 || error.status === 401 ? words.notAllowed : error.status === 404 ? words.notFound : mayPass(error) ? words.notLoaded : words.failed);

/** @param {{error: any, again?: () => void}} p */
export const Problem = ({ error, again }) => html`<div class="empty problem" role="alert"><strong>${titleOf(error)}</strong>
  <div>${error.message}${error.key ? html` <code>${error.key}</code>` : ''}</div>${again && html`<button type="button" onClick=${again}>${words.tryAgain}</button>`}</div>`;

/** The heading of a page. @param {{title: any, text?: any, children?: any}} p */
export const Heading = ({ title, text, children }) => html`<header class="title"><div><h1>${title}</h1>${text && html`<p>${text}</p>`}</div><div class="actions">${children}</div></header>`;

/** A card with a bar of heading and controls. @param {{title?: any, controls?: any, children?: any, kind?: string, label?: string}} p */
export const Card = ({ title, controls, children, kind = '', label }) => html`<section class=${`card ${kind}`} aria-label=${label}>${(title || controls) && html`<header class="bar">${title && html`<h2>${title}</h2><span class="grow"></span>`}${controls}</header>`}${children}</section>`;

/**
 * A table whose columns are headings, or `[heading, kind]`; kind `num` aligns to the end.
 * @param {{columns: (string | string[])[], children?: any, label: string}} p
 */
export const Table = ({ columns, children, label }) => html`<div class="scroll-x" tabindex="0" role="region" aria-label=${label}><table class="list" aria-label=${label}><thead><tr>${columns.map((one) => [one].flat()).map(([name, kind = '']) => html`<th scope="col" class=${kind}>${kind === 'hidden' ? html`<span class="hidden">${name}</span>` : name}</th>`)}</tr></thead><tbody>${children}</tbody></table></div>`;

const TOASTS = 4; // shown at once
/** @type {Signal<{id: number, text: string, kind: string}[]>} */
const toasts = signal([]);
let lastToast = 0;

/** Show a short message in the corner. @param {string} text @param {'ok' | 'bad'} [kind] failures stay longer */
export function say(text, kind = 'ok') {
  const id = ++lastToast;
  toasts.value = [...toasts.value, { id, text, kind }].slice(-TOASTS);
  setTimeout(() => (toasts.value = toasts.value.filter((one) => one.id !== id)), kind === 'bad' ? 8000 : 3000);
}

export const Toasts = () => html`<div class="toasts" role="status" aria-live="polite">${toasts.value.map(({ id, text, kind }) => html`<div key=${id} class=${`toast ${kind}`}>${text}</div>`)}</div>`;
