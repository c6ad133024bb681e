// @ts-check
/** Dialogs in the middle and panels at the side. */
import { html, useEffect, useLayoutEffect, useRef } from '../vendor/preact.js';
import { Mark } from './basics.js';
import { closeLabel } from '../words/en/common.js';

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
    <header><h2>${title}</h2>${!must && html`<${Mark} icon="close" kind="square" label=${closeLabel} onClick=${onClose} />`}</header>
    <div class="body">${children}</div></dialog>`;
}
