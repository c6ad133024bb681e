// @ts-check
/** Text that is code, and the command that does the same as a button. */
import { html } from '../vendor/preact.js';
import { Copy, Icon } from './basics.js';
import { asCommand } from '../words/en/common.js';

const TOKEN = /"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b|-?\b\d+(?:\.\d+)?\b/g;
const LIMIT = 20_000; // characters that are coloured; longer texts stay plain

/** @param {string} text */
function coloured(text) {
  if (text.length > LIMIT) return text;
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(TOKEN)) {
    const [token] = found;
    const end = found.index + token.length;
    const kind = token[0] !== '"' ? (/^[tfn]/.test(token) ? 'word' : 'number') : /^\s*:/.test(text.slice(end, end + 9)) ? 'name' : 'string';
    parts.push(text.slice(at, found.index), html`<span class=${`t-${kind}`}>${token}</span>`);
    at = end;
  }
  return [...parts, text.slice(at)];
}

/** @param {{text: string, label: string, plain?: boolean}} p plain: without colours */
export const Code = ({ text, label, plain = false }) => html`<div class="code"><pre tabindex="0" role="region" aria-label=${label}>${plain ? text : coloured(text)}</pre><${Copy} text=${text} /></div>`;

/** The command of the command line that does what the page does. @param {{text: string}} p */
export const AsCommand = ({ text }) => html`<details class="command"><summary><${Icon} name="terminal" />${asCommand}</summary><${Code} label=${asCommand} text=${text} plain /></details>`;
