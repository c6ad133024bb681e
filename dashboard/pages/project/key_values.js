// @ts-check
/** The key-value pairs of a project's applets. */
import { html, useState } from '../../vendor/preact.js';
import { put, remove, segment } from '../../core/api.js';
import { useLoad } from '../../core/load.js';
import { quoted, readable, size, base64 } from '../../core/format.js';
import { filter, query } from '../../core/route.js';
import { Badge, Card, Copy, Do, Empty, Show, Table, say, typed, typedSlowly } from '../../parts/basics.js';
import { AsCommand, Code } from '../../parts/code.js';
import { Confirm, Dialog } from '../../parts/dialog.js';
import { Field, Form, Text } from '../../parts/form.js';
import * as words from '../../words/en/data.js';

const PAGE = 100;
const SHOWN = 96; // characters of a value in the list

/** @typedef {Api.StoredPair} StoredPair */

/** A value as text, with what it is. @param {Pick<StoredPair, 'value' | 'encoding'>} pair @returns {{kind: string, text: string}} */
function shown({ value, encoding }) {
  const read = encoding === 'base64' ? readable(value) : readable(base64(value));
  const number = read.kind !== 'bytes' && read.text !== '' && Number.isFinite(Number(read.text));
  return { kind: number ? 'number' : read.kind, text: read.text };
}

/** @param {{project: string, appletID: string, pair: StoredPair, onClose: () => void, again: () => void}} p */
function Pair({ project, appletID, pair, onClose, again }) {
  const [editing, edit] = useState(false);
  const [removing, ask] = useState(false);
  const { kind, text } = shown(pair);
  const path = /** @type {const} */ (`/kv/${segment(project)}`);
  const asked = { appletID, key: pair.key, encoding: pair.keyEncoding };
  const save = async (/** @type {Values} */ { value }) => {
    await put(path, { value, encoding: 'text' }, { query: asked });
    say(words.saved);
    again();
    onClose();
  };
  return html`<${Dialog} side title=${words.pair} onClose=${onClose}><div class="line"><code>${pair.key}</code><${Copy} text=${pair.key} /><${Badge}>${words.kinds[/** @type {keyof typeof words.kinds} */ (kind)]}<//><span class="dim">${size(pair.size)}</span></div>
    ${editing ? html`<${Form} submit=${words.save} work=${save}><${Field} label=${words.value} hint=${words.valueHint}><textarea name="value" rows="12" spellcheck=${false} defaultValue=${kind === 'bytes' ? '' : text}></textarea><//><//>` : html`<${Code} label=${words.value} text=${text} plain=${kind !== 'json'} />`}
    <div class="line">${!editing && html`<${Do} icon="edit" onClick=${() => edit(true)}>${words.change}<//>`}<${Do} icon="trash" class="danger" onClick=${() => ask(true)}>${words.remove}<//></div>
    <${AsCommand} text=${`fieldbrook kv get ${quoted(project)} ${quoted(pair.key)}`} />
    ${removing && html`<${Confirm} title=${words.remove} text=${words.removeText(pair.key)} submit=${words.remove} onClose=${() => ask(false)} work=${async () => { await remove(path, asked); again(); onClose(); }} />`}<//>`;
}

/** @param {{project: string, appletID: string, onClose: () => void, again: () => void}} p */
function NewPair({ project, appletID, onClose, again }) {
  const work = async (/** @type {Values} */ { key, value }) => {
    await put(`/kv/${segment(project)}`, { value, encoding: 'text' }, { query: { appletID, key, encoding: 'text' } });
    say(words.saved);
    again();
    onClose();
  };
  return html`<${Dialog} title=${words.add} onClose=${onClose}><${Form} submit=${words.save} work=${work}>
    <${Field} label=${words.key}><${Text} name="key" required autofocus /><//><${Field} label=${words.value} hint=${words.valueHint}><textarea name="value" rows="8" spellcheck=${false}></textarea><//><//><//>`;
}

/** @param {{project: string, applets: Api.AppletReply[]}} p */
export function KeyValues({ project, applets }) {
  const { prefix = '' } = query.value;
  const appletID = query.value.applet ?? applets.at(-1)?.appletID ?? '';
  const [open, show] = useState(/** @type {StoredPair | null} */ (null));
  const [adding, add] = useState(false);
  const [pages, more] = useState({ of: '', cursors: [''] });
  const name = `${appletID}\n${prefix}`;
  const cursors = pages.of === name ? pages.cursors : [''];
  const loaded = useLoad(async (get) => {
    /** @type {StoredPair[]} */
    const rows = [];
    let next = '';
    if (!appletID) return { rows, next };
    for (const after of cursors) {
      const page = /** @type {Api.PairPage} */ (await get(`/kv/${segment(project)}`, { appletID, prefix, after, limit: PAGE, values: true }));
      rows.push(...page.data);
      next = page.next ?? '';
    }
    return { rows, next };
  }, [project, name, cursors.length]);
  return html`<${Card} title=${words.pairs} controls=${html`<select aria-label=${words.applet} value=${appletID} onChange=${typed((v) => filter({ applet: v }))}>${applets.map((one) => html`<option value=${one.appletID}>${one.name}</option>`)}</select>
      <input type="search" placeholder=${words.prefix} aria-label=${words.prefix} defaultValue=${prefix} onInput=${typedSlowly((text) => filter({ prefix: text }))} />${appletID && html`<${Do} icon="plus" onClick=${() => add(true)}>${words.add}<//>`}`}>
    <${Show} of=${loaded}>${(/** @type {{rows: StoredPair[], next: string}} */ { rows, next }) => (rows.length ? html`<${Table} label=${words.pairs} columns=${[words.key, words.value, words.kind, [words.size, 'num']]}>
        ${rows.map((pair) => {
          const { kind, text } = shown(pair);
          return html`<tr key=${pair.key}><td><button type="button" class="link mono" onClick=${() => show(pair)}>${pair.key}</button></td><td class="mono cut">${text.slice(0, SHOWN)}</td><td class="dim">${words.kinds[/** @type {keyof typeof words.kinds} */ (kind)]}</td><td class="num dim">${size(pair.size)}</td></tr>`;
        })}<//>${next && html`<div class="pad"><button type="button" onClick=${() => more({ of: name, cursors: [...cursors, next] })}>${words.more}</button></div>`}`
      : html`<${Empty} title=${prefix ? words.noPairsFound : words.noPairs} icon="key">${words.noPairsHint}<//>`)}<//><//>
    ${open && html`<${Pair} key=${open.key} project=${project} appletID=${appletID} pair=${open} onClose=${() => show(null)} again=${loaded.again} />`}
    ${adding && html`<${NewPair} project=${project} appletID=${appletID} onClose=${() => add(false)} again=${loaded.again} />`}`;
}
