// @ts-check
/** Dialogs in the middle and panels at the side. */
import { html, useEffect, useLayoutEffect, useRef, useState } from '../vendor/preact.js';
import { Mark, typed } from './basics.js';
import { Field, Form, Text } from './form.js';
import * as words from '../words/en/common.js';

/**
 * A dialog. A side panel leaves the page behind it usable. Escape closes both, and focus returns to
 * the element that had it.
 * @param {{title: string, onClose: () => void, children?: any, side?: boolean, must?: boolean, kind?: string}} p
 *   must: it cannot be dismissed
 */
export function Dialog({ title, onClose, children, side = false, must = false, kind = '' }) {
  const ref = useRef(/** @type {any} */ (null));
  // Before the next frame: keys that are pressed at once belong to the dialog, or to its opener.
  useLayoutEffect(() => {
    const opener = /** @type {HTMLElement | null} */ (document.activeElement);
    const dialog = ref.current;
    if (side) dialog.show();
    else dialog.showModal();
    return () => {
      dialog.close();
      if (opener?.isConnected) opener.focus({ preventScroll: true });
    };
  }, []);
  useEffect(() => {
    if (!side) return undefined;
    const escape = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === 'Escape' && !document.querySelector('dialog:modal')) onClose();
    };
    addEventListener('keydown', escape);
    return () => removeEventListener('keydown', escape);
  }, [side, onClose]);
  const cancel = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!must) onClose();
  };
  return html`<dialog ref=${ref} class=${`${side ? 'panel' : ''} ${kind}`} aria-label=${title} onCancel=${cancel}>
    <header><h2>${title}</h2>${!must && html`<${Mark} icon="close" kind="square" label=${words.closeLabel} onClick=${onClose} />`}</header>
    <div class="body">${children}</div></dialog>`;
}

/**
 * Ask before something that cannot be undone. With `name`, that name has to be typed.
 * @param {{title: string, text: any, submit: string, work: () => Promise<unknown>, onClose: () => void, name?: string}} p
 */
export function Confirm({ title, text, submit, work, onClose, name = '' }) {
  const [entered, enter] = useState('');
  return html`<${Dialog} title=${title} onClose=${onClose}><${Form} submit=${submit} work=${work} onDone=${onClose} danger disabled=${entered !== name}>
    <p>${text}</p>${name && html`<${Field} label=${words.typeName(name)}><${Text} onInput=${typed(enter)} /><//>`}<//><//>`;
}
