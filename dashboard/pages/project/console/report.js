// @ts-check
/** What a handler did in a dry run. */
import { html } from '../../../vendor/preact.js';
import { NONE, duration, levelKind, size } from '../../../core/format.js';
import { Badge, Table } from '../../../parts/basics.js';
import * as words from '../../../words/en/console.js';

/** @typedef {{value: string, encoding: string, size: number}} Bytes as the node shows them: the first 4 KiB */

/** @param {{of: Bytes | null}} p */
const Shown = ({ of: bytes }) => (bytes === null ? html`<span class="dim">${words.absent}</span>` : html`<span class="mono" title=${size(bytes.size)}>${bytes.value}</span>${bytes.encoding !== 'text' && html` <small class="dim">${words.asBase64}</small>`}`);

/** A heading, and its rows or what it means that there are none. @param {{title: string, none: string, list: any[], children: (list: any[]) => any}} p */
const Part = ({ title, none, list, children }) => html`<div><h3>${title}</h3>${list.length ? children(list) : html`<p class="hint">${none}</p>`}</div>`;

/** @param {any[]} logs */
const logged = (logs) => logs.map((row) => html`<p class="log-line mono"><${Badge} kind=${levelKind(row.level)}>${row.level}<//> ${row.text}</p>`);

/** @param {any[]} writes */
const wrote = (writes) => html`<${Table} label=${words.writes} columns=${[words.key, words.before, words.after]}>${writes.map(({ key, before, after }) => html`<tr><td class="wrap"><${Shown} of=${key} /></td><td class="wrap"><${Shown} of=${before} /></td><td class="wrap"><${Shown} of=${after} /></td></tr>`)}<//>`;

/** @param {any[]} statements */
const asked = (statements) => html`<${Table} label=${words.statements} columns=${[words.statement, words.statementResult, [words.time, 'num']]}>${statements.map((one) => html`<tr><td class="wrap"><${Shown} of=${one.request} /></td><td class="wrap">${one.error ? html`<span class="error">${one.error}</span>` : html`<${Shown} of=${one.result} />`}</td><td class="num dim">${duration(one.elapsedUs / 1000)}</td></tr>`)}<//>`;

/** @param {any[]} effects */
const sends = (effects) => html`<${Table} label=${words.effects} columns=${[words.kind, words.target, words.body]}>${effects.map((one) => html`<tr><td><${Badge}>${one.kind}<//></td><td class="mono">${one.target || NONE}</td><td class="wrap"><${Shown} of=${one.body} /></td></tr>`)}<//>`;

/** @param {{report: any}} p as `POST /applet/data/{appletID}/run` answers it */
export const Report = ({ report }) => html`<div class="pad stack">${report.error && html`<p class="error" role="alert">${report.error}</p>`}
  <dl class="pairs"><dt>${words.code}</dt><dd class="mono">${report.code}</dd><dt>${words.time}</dt><dd>${duration(report.elapsedUs / 1000)}</dd><dt>${words.memory}</dt><dd>${size(report.memoryBytes)}</dd></dl>
  <${Part} title=${words.logs} none=${words.noLogs} list=${report.logs}>${logged}<//><${Part} title=${words.writes} none=${words.noWrites} list=${report.writes}>${wrote}<//>
  ${report.statements.length > 0 && html`<${Part} title=${words.statements} none="" list=${report.statements}>${asked}<//>`}<${Part} title=${words.effects} none=${words.noEffects} list=${report.effects}>${sends}<//>
  ${report.notes.length > 0 && html`<ul class="hint notes">${report.notes.map((/** @type {string} */ text) => html`<li>${text}</li>`)}</ul>`}</div>`;
