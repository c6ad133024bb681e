// @ts-check
/** The console: send an event as a device would, or try a handler without keeping anything. */
import { html, useEffect, useState } from '../../vendor/preact.js';
import { get, post, segment } from '../../core/api.js';
import { attempt } from '../../core/load.js';
import { readable } from '../../core/format.js';
import { filter, query } from '../../core/route.js';
import { Card, Empty, say } from '../../parts/basics.js';
import { Editor } from './console/editor.js';
import { History, Result } from './console/result.js';
import { keptOf } from './console/kept.js';
import * as words from '../../words/en/console.js';

/**
 * The draft of an event of the history, to try it on another version.
 * @param {string} project @param {string} place @returns {Promise<import('./console/kept.js').Draft>}
 */
async function draftFrom(project, place) {
  const event = await get(`/event_log/${segment(project)}/at/${segment(place)}`);
  if (event.payload == null && event.size) throw new Error(words.payloadGone);
  const { kind, text } = readable(event.payload ?? '');
  const binary = kind === 'bytes';
  return { publisherID: event.publisherID, type: event.eventType, text: binary ? (event.payload ?? '') : text, encoding: binary ? 'base64' : 'text', way: 'dry' };
}

/** @param {{project: string, again: () => void}} p */
function NoPublisher({ project, again }) {
  const add = () => attempt(async () => {
    await post(`/publisher/x/${segment(project)}/upsert`, { key: words.publisherKey, name: words.publisherName });
    again();
  });
  return html`<${Card} title=${words.editor}><${Empty} title=${words.noPublisher} icon="send">${words.noPublisherHint}<p><button type="button" class="primary" onClick=${add}>${words.addPublisher}</button></p><//><//>`;
}

/** @param {Project} p */
export function Page({ name, applets, publishers, again }) {
  const kept = keptOf(name);
  const types = [...new Set(applets.flatMap((one) => one.strategies.map((rule) => rule.eventType)))];
  const [draft, set] = useState(/** @type {import('./console/kept.js').Draft} */ (kept.draft ?? { publisherID: publishers[0]?.publisherID ?? '', type: types[0] ?? 'DEFAULT', text: words.sample, encoding: 'text', way: 'http' }));
  const [shown, show] = useState(kept.entries.value.at(0));
  const change = (/** @type {Partial<import('./console/kept.js').Draft>} */ changes) => set((old) => {
    kept.draft = { ...old, ...changes };
    return kept.draft;
  });
  const place = query.value.from;
  useEffect(() => {
    if (!place) return;
    attempt(async () => {
      change(await draftFrom(name, place));
      filter({ from: '' });
      say(words.loaded);
    });
  }, [place]);
  const pick = (/** @type {import('./console/kept.js').Entry} */ entry) => {
    show(entry);
    change(entry.draft);
  };
  return html`<div class="halves">${publishers.length || draft.way === 'dry' ? html`<${Editor} project=${name} applets=${applets} publishers=${publishers} types=${types} draft=${draft} change=${change} onSent=${show} />` : html`<${NoPublisher} project=${name} again=${again} />`}
      <${Result} project=${name} publishers=${publishers} entry=${shown} /></div>
    ${kept.entries.value.length > 0 && html`<${History} entries=${kept.entries.value} shown=${shown} show=${pick} />`}`;
}
