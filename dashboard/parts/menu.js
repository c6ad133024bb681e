// @ts-check
/** Controls behind a button. Escape closes them, and so does leaving them. */
import { html } from '../vendor/preact.js';

/** @param {{label: string, children?: any}} p */
export function Menu({ label, children }) {
  const key = (/** @type {any} */ event) => {
    if (event.key !== 'Escape' || !event.currentTarget.open) return;
    event.stopPropagation(); // the panel beside it stays
    event.currentTarget.open = false;
    event.currentTarget.firstElementChild.focus();
  };
  const left = (/** @type {any} */ event) => {
    if (event.relatedTarget && !event.currentTarget.contains(event.relatedTarget)) event.currentTarget.open = false;
  };
  return html`<details class="menu" onKeyDown=${key} onFocusOut=${left}><summary class="button">${label}</summary><div class="menu-body">${children}</div></details>`;
}
