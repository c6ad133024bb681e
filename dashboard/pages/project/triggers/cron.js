// @ts-check
/** Cron jobs: events at certain times. */
import { html, useState } from '../../../vendor/preact.js';
import { post, remove } from '../../../core/api.js';
import { useLoad } from '../../../core/load.js';
import { day, moment, quoted, utc } from '../../../core/format.js';
import { Ago, Card, Do, Empty, Mark, Show, Table, say } from '../../../parts/basics.js';
import { AsCommand } from '../../../parts/code.js';
import { Confirm, Dialog } from '../../../parts/dialog.js';
import { Field, Form, Text } from '../../../parts/form.js';
import * as words from '../../../words/en/triggers.js';
import { actions, remove as removeWord } from '../../../words/en/common.js';

const EVERY_MS = 20_000;

/**
 * Day and time, without the day of the one before it, this year, and seconds that are zero.
 * @param {string} at @param {string} [before]
 */
function short(at, before) {
  const [date, time] = moment(at).split(', ');
  const clock = time.replace(/^(\d\d:\d\d):00$/, '$1');
  if (before && day(before) === day(at)) return clock;
  const thisYear = day(at).slice(0, 4) === day(Date.now()).slice(0, 4);
  return `${thisYear ? date : day(at)}, ${clock}`;
}

/** @param {{times: string[]}} p */
const Times = ({ times }) => html`<span class="times">${times.map((at, i) => html`<time dateTime=${at} title=${utc(at)}>${short(at, times[i - 1])}</time>`)}</span>`;

/** @param {{project: string, id: string, onClose: () => void, onDone: () => void}} p */
function AddCron({ project, id, onClose, onDone }) {
  const [text, type] = useState('');
  const work = async (/** @type {Values} */ form) => {
    await post(`/cronjob/${id}`, { cronExpressions: form.expression, eventType: form.type.trim() });
    say(words.cronAdded);
    onDone();
    onClose();
  };
  const input = (/** @type {any} */ e) => type(e.target.value);
  return html`<${Dialog} title=${words.addCron} onClose=${onClose}><${Form} submit=${words.addCron} work=${work}>
    <${Field} label=${words.expression} hint=${words.expressionHint}><${Text} name="expression" required autofocus list="cron-presets" class="mono" placeholder="*/5 * * * *" onInput=${input} /><//><datalist id="cron-presets">${Object.entries(words.presets).map(([value, title]) => html`<option value=${value}>${title}</option>`)}</datalist>
    <${Field} label=${words.eventType} hint=${words.eventTypeHint}><${Text} name="type" autocapitalize="none" /><//><//>
    <${Preview} id=${id} text=${text} /><${AsCommand} text=${`fieldbrook cron add ${quoted(project)} ${quoted(text || 'EXPRESSION')}`} /><//>`;
}

/** The next times of an expression, as the node reads it. @param {{id: string, text: string}} p */
function Preview({ id, text }) {
  const next = useLoad(async (get) => (text.trim() ? get(`/cronjob/${id}/next`, { cronExpressions: text }) : null), [text]);
  if (!text.trim()) return null;
  return html`<div class="preview" aria-live="polite">${next.error ? html`<small class="error">${next.error.message}</small>` : next.data && html`<small class="dim">${words.comingTimes}</small><${Times} times=${next.data.next} />`}</div>`;
}

/** @param {{list: any[], drop: (job: any) => void}} p */
const List = ({ list, drop }) => {
  const { expression, type, next, then } = words.cronColumns;
  return html`<${Table} label=${words.cron} columns=${[expression, type, next, then, [actions, 'hidden']]}>${list.map((job) => html`<tr key=${job.cronJobID}><td class="mono once">${job.cronExpressions}</td><td>${job.eventType}</td>
    <td class="once">${job.nextAt ? html`<${Ago} at=${job.nextAt} />` : html`<span class="dim">${words.neverAgain}</span>`}</td><td class="dim"><${Times} times=${job.next} /></td>
    <td class="end"><${Mark} icon="trash" label=${words.deleteCron(job.cronExpressions)} title=${removeWord} onClick=${() => drop(job)} /></td></tr>`)}<//>`;
};

/** @param {{project: string, id: string}} p id: of the project */
export function CronJobs({ project, id }) {
  const [dialog, show] = useState(/** @type {{job?: any} | null} */ (null));
  const loaded = useLoad((get) => get(`/cronjob/${id}`, { size: 1000 }), [id], EVERY_MS);
  const close = () => show(null);
  const job = dialog?.job;
  const drop = async () => {
    await remove(`/cronjob/data/${job.cronJobID}`);
    say(words.cronDeleted);
    loaded.again();
  };
  const add = html`<${Do} icon="plus" onClick=${() => show({})}>${words.addCron}<//>`;
  return html`<${Card} title=${words.cron} controls=${add}><${Show} of=${loaded} rows=${2}>${(/** @type {any} */ { data }) => (data.length ? html`<${List} list=${data} drop=${(/** @type {Api.CronJobReply} */ one) => show({ job: one })} />` : html`<${Empty} title=${words.cronNone}>${words.cronNoneHint}<//>`)}<//>
    ${dialog && !job && html`<${AddCron} project=${project} id=${id} onClose=${close} onDone=${loaded.again} />`}
    ${job && html`<${Confirm} title=${words.deleteCron(job.cronExpressions)} text=${words.deleteCronText} submit=${removeWord} onClose=${close} work=${drop} />`}<//>`;
}
