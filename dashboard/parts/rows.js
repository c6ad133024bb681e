// @ts-check
/** A long list of which only the rows in sight are in the document. */
import { html, useEffect, useRef, useState } from '../vendor/preact.js';

const SPARE = 6;

/**
 * @param {{rows: any[], height: number, row: (row: any, index: number) => any, label: string, columns: string[], kind?: string,
 *   onTop?: (top: boolean) => void, onHold?: (held: boolean) => void, onKey?: (event: KeyboardEvent) => void}} p
 *   height: of a row in pixels; onTop: whether the list is scrolled to its top; onHold: whether the pointer is over the rows
 */
export function Rows({ rows, height, row, label, columns, kind = '', onTop, onHold, onKey }) {
  const box = useRef(/** @type {any} */ (null));
  const [view, set] = useState({ top: 0, tall: 600 });
  useEffect(() => {
    const scroll = box.current;
    const look = () => {
      set({ top: scroll.scrollTop, tall: scroll.clientHeight });
      onTop?.(scroll.scrollTop < 4);
    };
    const sized = new ResizeObserver(look);
    scroll.addEventListener('scroll', look, { passive: true });
    sized.observe(scroll);
    return () => {
      scroll.removeEventListener('scroll', look);
      sized.disconnect();
    };
  }, []);
  const first = Math.max(0, Math.floor(view.top / height) - SPARE);
  const seen = rows.slice(first, first + Math.ceil(view.tall / height) + 2 * SPARE);
  return html`<div class=${`rows ${kind}`} role="table" aria-label=${label} aria-rowcount=${rows.length + 1}>
    <div role="rowgroup"><div class="head" role="row" aria-rowindex="1">${columns.map((name) => html`<span role="columnheader">${name}</span>`)}</div></div>
    <div class="scroll" ref=${box} tabindex="0" role="rowgroup" aria-label=${label} onKeyDown=${onKey} onMouseEnter=${() => onHold?.(true)} onMouseLeave=${() => onHold?.(false)}>
      <div role="presentation" style=${{ height: rows.length * height }}><div role="presentation" style=${{ transform: `translateY(${first * height}px)` }}>
        ${seen.map((one, i) => row(one, first + i))}</div></div></div></div>`;
}
