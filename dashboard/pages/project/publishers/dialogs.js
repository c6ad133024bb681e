// @ts-check
/** Dialogs that add a publisher, change it, and give it a new token. */
import { html, useState } from '../../../vendor/preact.js';
import { post, put, segment } from '../../../core/api.js';
import { quoted } from '../../../core/format.js';
import { AsCommand } from '../../../parts/code.js';
import { Dialog } from '../../../parts/dialog.js';
import { Field, Form, Text } from '../../../parts/form.js';
import { say, typed } from '../../../parts/basics.js';
import * as words from '../../../words/en/publishers.js';
import { save } from '../../../words/en/common.js';

/** Lines of a text, without empty ones. @param {string} text */
const lines = (text) => text.split('\n').map((line) => line.trim()).filter(Boolean);

const Days = () => html`<${Field} label=${words.days} hint=${words.daysHint}><input name="days" type="number" min="1" max="36500" /><//>`;

/** @param {{types?: string[]}} p */
const Types = ({ types = [] }) => html`<${Field} label=${words.types} hint=${words.typesHint}><textarea name="types" rows="3" spellcheck=${false} defaultValue=${types.join('\n')}></textarea><//>`;

/** @param {{project: string, onClose: () => void, onDone: (publisherID: string) => void}} p */
export function AddPublisher({ project, onClose, onDone }) {
  const [key, type] = useState('');
  const work = async (/** @type {Values} */ form) => {
    const made = await post(`/publisher/x/${segment(project)}`, { key: form.key, name: form.name || form.key, eventTypes: lines(form.types), expirationDays: Number(form.days) || 0 });
    say(words.added(form.key));
    onDone(made.publisherID);
  };
  return html`<${Dialog} title=${words.add} onClose=${onClose}><${Form} submit=${words.add} work=${work}>
    <${Field} label=${words.key} hint=${words.keyHint}><${Text} name="key" required autofocus autocapitalize="none" onInput=${typed(type)} /><//>
    <${Field} label=${words.name} hint=${words.nameHint}><input name="name" autocomplete="off" /><//><${Types} /><${Days} /><//>
    <${AsCommand} text=${`fieldbrook publisher add ${quoted(project)} ${quoted(key || 'KEY')}`} /><//>`;
}

/** @param {{project: string, publisher: Api.PublisherReply, onClose: () => void, onDone: () => void}} p */
export function EditPublisher({ project, publisher, onClose, onDone }) {
  const work = async (/** @type {Values} */ form) => {
    await put(`/publisher/x/${segment(project)}/${publisher.publisherID}`, { key: form.key, name: form.name || form.key, eventTypes: lines(form.types) });
    say(words.changed(form.key));
    onDone();
    onClose();
  };
  return html`<${Dialog} title=${words.editTitle(publisher.key)} onClose=${onClose}><${Form} submit=${save} work=${work}>
    <${Field} label=${words.key} hint=${words.keyHint}><${Text} name="key" required defaultValue=${publisher.key} autocapitalize="none" /><//>
    <${Field} label=${words.name} hint=${words.nameHint}><input name="name" autocomplete="off" defaultValue=${publisher.name} /><//><${Types} types=${publisher.eventTypes} /><//>
    <${AsCommand} text=${`fieldbrook publisher allow ${quoted(project)} ${quoted(publisher.key)} TYPE…`} /><//>`;
}

/** @param {{project: string, publisher: Api.PublisherReply, onClose: () => void, onDone: () => void}} p */
export function NewToken({ project, publisher, onClose, onDone }) {
  const work = async (/** @type {Values} */ { days }) => {
    await post(`/publisher/data/${publisher.publisherID}/token`, { expirationDays: Number(days) || 0 });
    say(words.rotated);
    onDone();
  };
  return html`<${Dialog} title=${words.rotateTitle(publisher.key)} onClose=${onClose}><${Form} submit=${words.newToken} work=${work} danger><p>${words.rotateText}</p><${Days} /><//>
    <${AsCommand} text=${`fieldbrook publisher rotate ${quoted(project)} ${quoted(publisher.key)}`} /><//>`;
}
