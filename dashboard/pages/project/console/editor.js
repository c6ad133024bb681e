// @ts-check
/** The editor of the console: who sends, which type, and the payload. */
import { html, useState } from '../../../vendor/preact.js';
import { Card, Do, typed } from '../../../parts/basics.js';
import { Field } from '../../../parts/form.js';
import { checked } from './payload.js';
import { dryRun, sendEvent } from './sending.js';
import { Commands, DryCommand, DryRun, useDryRun } from './ways.js';
import * as words from '../../../words/en/console.js';

/** @typedef {import('./kept.js').Draft} Draft */

/** @param {{draft: Draft, change: (changes: Partial<Draft>) => void, send: () => void}} p */
function Payload({ draft, change, send }) {
  const check = checked(draft.text, draft.encoding);
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    send();
  };
  const format = () => change({ text: JSON.stringify(JSON.parse(draft.text), null, 2) });
  return html`<div class="field"><div class="line"><span class="name">${words.payload}</span><span class="grow"></span>${check.json && html`<button type="button" class="ghost small" onClick=${format}>${words.format}</button>`}
      <select class="small" aria-label=${words.payloadAs} onChange=${typed((v) => change({ encoding: v }))}>${Object.entries(words.encodings).map(([name, title]) => html`<option value=${name} selected=${name === draft.encoding}>${title}</option>`)}</select></div>
    <textarea rows="12" aria-label=${words.payload} aria-invalid=${!check.ok} aria-describedby="payload-check" spellcheck=${false} autocapitalize="none" value=${draft.text} onInput=${typed((v) => change({ text: v }))} onKeyDown=${key}></textarea>
    <small id="payload-check" class=${check.ok ? '' : 'error'}>${check.note}</small></div>`;
}

/** @param {{draft: Draft, change: (changes: Partial<Draft>) => void, publishers: Api.PublisherReply[], types: string[]}} p */
const Head = ({ draft, change, publishers, types }) => html`<div class="fields">
  ${draft.way !== 'dry' && html`<${Field} label=${words.publisher}><select onChange=${typed((v) => change({ publisherID: v }))}>${publishers.map((one) => html`<option value=${one.publisherID} selected=${one.publisherID === draft.publisherID}>${one.key}</option>`)}</select><//>`}
  <${Field} label=${words.eventType}><input list="console-types" value=${draft.type} spellcheck=${false} autocapitalize="none" onInput=${typed((v) => change({ type: v }))} /><//><datalist id="console-types">${types.map((one) => html`<option value=${one} />`)}</datalist></div>`;

/**
 * @param {{project: string, applets: Api.AppletReply[], publishers: Api.PublisherReply[], types: string[], draft: Draft, change: (changes: Partial<Draft>) => void,
 *   onSent: (entry: import('./kept.js').Entry) => void}} p
 */
export function Editor({ project, applets, publishers, types, draft, change, onSent }) {
  const [busy, set] = useState(false);
  const publisher = publishers.find((one) => one.publisherID === draft.publisherID) ?? publishers[0];
  const dry = draft.way === 'dry';
  const run = useDryRun(applets, draft.type, dry);
  const { what } = run;
  const check = checked(draft.text, draft.encoding);
  const can = !busy && draft.way !== 'mqtt' && (draft.encoding === 'text' || check.ok) && (dry ? what !== null : publisher !== undefined);
  const send = async () => {
    if (!can) return;
    set(true);
    const sent = { ...draft, type: draft.type.trim() || 'DEFAULT' };
    onSent(dry && what ? await dryRun(project, sent, check.base64, what) : await sendEvent(project, publisher, sent, check.base64));
    set(false);
  };
  return html`<${Card} title=${words.editor} controls=${html`<div class="segments" role="group" aria-label=${words.way}>${Object.entries(words.ways).map(([name, title]) => html`<button type="button" aria-pressed=${name === draft.way} onClick=${() => change({ way: /** @type {any} */ (name) })}>${title}</button>`)}</div>`}><div class="pad stack">
    <${Head} draft=${draft} change=${change} publishers=${publishers} types=${types} />
    ${dry && html`<${DryRun} applets=${applets} of=${run} />`}
    <${Payload} draft=${draft} change=${change} send=${send} />
    ${draft.way !== 'mqtt' && html`<div class="line"><${Do} icon=${dry ? 'play' : 'send'} class="primary" disabled=${!can} onClick=${send}>${busy ? words.sending : dry ? words.run : words.send}<//><kbd>${words.sendKeys}</kbd></div>`}
    ${dry && what && html`<${DryCommand} project=${project} applets=${applets} what=${what} draft=${draft} />`}
    ${!dry && html`<${Commands} project=${project} publisher=${publisher} draft=${draft} />`}</div><//>`;
}
