// @ts-check
/** Forms in dialogs: fields, a button that says that it works, and the reason of a refusal. */
import { html, useEffect, useId, useRef, useState } from '../vendor/preact.js';
import * as words from '../words/en/common.js';

/**
 * A label with its control, which a hint describes. Controls are not bound to state
 * (`defaultValue`), so a redraw never empties what was typed.
 * @param {{label: string, hint?: any, children?: any}} p
 */
export function Field({ label, hint, children }) {
  const id = useId();
  const box = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const control = box.current.querySelector('input, select, textarea');
    if (hint) control?.setAttribute('aria-describedby', id);
    else control?.removeAttribute('aria-describedby');
  });
  return html`<div class="field" ref=${box}><label><span>${label}</span>${children}</label>${hint && html`<small id=${id}>${hint}</small>`}</div>`;
}

/** A field for names and keys, which no browser completes or corrects. @param {Values} p */
export const Text = (p) => html`<input autocomplete="off" spellcheck=${false} ...${p} />`;

/** The named controls of a form. @param {any} form @returns {Values} */
export const values = (form) => Object.fromEntries(new FormData(form));

/**
 * A form that stays open until its work succeeded.
 * @param {{submit: string, work: (values: Values, form: HTMLFormElement) => Promise<unknown>, children?: any,
 *   onDone?: () => void, danger?: boolean, disabled?: boolean}} p
 */
export function Form({ submit, work, children, onDone, danger = false, disabled = false }) {
  const [error, fail] = useState('');
  const [busy, set] = useState(false);
  const run = async (/** @type {any} */ event) => {
    event.preventDefault();
    const form = event.currentTarget;
    fail('');
    set(true);
    try {
      await work(values(form), form);
      onDone?.();
    } catch (reason) {
      fail(/** @type {Error} */ (reason).message);
    } finally {
      set(false);
    }
  };
  return html`<form class="form" onSubmit=${run}>${children}<div class="error" role="alert">${error}</div>
    <div class="end"><button class=${danger ? 'danger' : 'primary'} disabled=${busy || disabled}>${busy ? words.busy : submit}</button></div></form>`;
}
