// @ts-check
/** What a traced handler asked of its host: keys, statements and messages with their results. */
import { html } from '../../vendor/preact.js';
import { readable, size } from '../../core/format.js';
import { Table } from '../../parts/basics.js';
import * as words from '../../words/en/host_calls.js';

/** @param {{value: string, encoding: string, size: number} | undefined} bytes of which only the first are there */
function text(bytes) {
  if (!bytes) return words.nothing;
  if (bytes.encoding === 'base64') {
    const shown = readable(bytes.value).text;
    return bytes.size > 1024 ? words.cut(shown, size(bytes.size)) : shown;
  }
  return bytes.size > new TextEncoder().encode(bytes.value).length ? words.cut(bytes.value, size(bytes.size)) : bytes.value;
}

/** @param {any} call */
function result(call) {
  if (call.error) return html`<span class="error">${call.error}</span>`;
  return call.function === 'ws_set_db' ? words.changed(text(call.before), text(call.result)) : text(call.result);
}

/** @param {{calls: any[], omitted: number}} p */
export const HostCalls = ({ calls, omitted }) => html`<${Table} label=${words.label} columns=${[words.call, words.subject, words.result, [words.time, 'num']]}>
  ${calls.map((call) => html`<tr><td class="mono">${call.function}</td><td class="mono wrap">${text(call.subject)}</td><td class="mono wrap">${result(call)}</td><td class="num dim">${call.us > 0 && words.microseconds(call.us)}</td></tr>`)}<//>
  ${omitted > 0 && html`<p class="dim">${words.omitted(omitted)}</p>`}`;
