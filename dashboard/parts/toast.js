// @ts-check
/** Short messages in the corner. */
import { html, signal } from '../vendor/preact.js';

const KEPT = 4;
/** @type {import('../vendor/preact.js').Signal<{id: number, text: string, kind: string}[]>} */
const shown = signal([]);
let last = 0;

/** @param {string} text @param {'ok' | 'bad'} [kind] failures stay longer */
export function say(text, kind = 'ok') {
  const id = ++last;
  shown.value = [...shown.value, { id, text, kind }].slice(-KEPT);
  setTimeout(() => (shown.value = shown.value.filter((one) => one.id !== id)), kind === 'bad' ? 8000 : 3000);
}

export const Toasts = () => html`<div class="toasts" role="status" aria-live="polite">${shown.value.map(({ id, text, kind }) => html`<div key=${id} class=${`toast ${kind}`}>${text}</div>`)}</div>`;
