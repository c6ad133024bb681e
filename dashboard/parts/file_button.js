// @ts-check
/** A button that asks for a file, and a place to drop one. */
import { html, useRef, useState } from '../vendor/preact.js';

/** @param {{accept: string, onFile: (file: File) => void, children?: any, kind?: string, label?: string}} p */
export function FileButton({ accept, onFile, children, kind = '', label }) {
  const input = useRef(/** @type {any} */ (null));
  const change = () => {
    const [file] = input.current.files;
    input.current.value = ''; // the same file can be chosen again
    if (file) onFile(file);
  };
  return html`<button type="button" class=${kind} aria-label=${label} onClick=${() => input.current.click()}>${children}</button>
    <input ref=${input} type="file" accept=${accept} hidden onChange=${change} />`;
}

/** @param {{onFile: (file: File) => void, label: string, children?: any}} p */
export function DropZone({ onFile, label, children }) {
  const [over, set] = useState(false);
  const drag = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    set(true);
  };
  const drop = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    set(false);
    const file = event.dataTransfer?.files[0];
    if (file) onFile(file);
  };
  return html`<section class=${`drop ${over ? 'over' : ''}`} aria-label=${label} onDragOver=${drag} onDragLeave=${() => set(false)} onDrop=${drop}>${children}</section>`;
}
