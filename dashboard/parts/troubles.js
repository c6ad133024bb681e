// @ts-check
/** Health conditions of the node, each with its meaning and a link to what to do. */
import { html } from '../vendor/preact.js';
import { Ago, Badge } from './basics.js';
import * as words from '../words/en/common.js';

/** @param {{list: any[]}} p as `GET /health` answers them */
export const Troubles = ({ list }) => html`<ul class="troubles">${list.map((one) => html`<li key=${one.part + one.state}>
  <div class="line"><${Badge} kind=${one.until ? '' : 'bad'}>${one.state}<//><strong>${one.part}</strong>${one.since && html`<span class="dim">${words.since} <${Ago} at=${one.since} /></span>`}${one.until && html`<span class="dim">${words.until} <${Ago} at=${one.until} /></span>`}</div>
  <div>${one.meaning}${one.detail && html` <span class="dim">${one.detail}</span>`}</div>
  <div><a href=${`/docs/how-to/monitor/#${one.state}`} target="_blank">${words.whatToDo}</a></div></li>`)}</ul>`;
