// @ts-check
/** What a traced handler asked of its host: keys, statements and messages with their results. */
import { html } from '../../vendor/preact.js';
import { Table } from '../../parts/basics.js';
import * as words from '../../words/en/host_calls.js';

/** @param {{calls: any[]}} p */
export const HostCalls = ({ calls }) => html`<${Table} label=${words.label} columns=${[[words.call], [words.subject], [words.result], [words.time, 'num']]}>
  ${calls.map((call) => html`<tr><td class="mono">${call.function}</td><td class="mono wrap">${call.subject}</td><td class="mono wrap">${call.result}</td><td class="num dim">${call.us != null && words.microseconds(call.us)}</td></tr>`)}</${Table}>`;
