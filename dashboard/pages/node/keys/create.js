// @ts-check
/** A new access key: its permissions, its expiry, and its text, which is shown once. */
import { html, useState } from '../../../vendor/preact.js';
import { post } from '../../../core/api.js';
import { useLoad } from '../../../core/load.js';
import { quoted } from '../../../core/format.js';
import { Show } from '../../../parts/basics.js';
import { AsCommand, Code } from '../../../parts/code.js';
import { Dialog } from '../../../parts/dialog.js';
import { Field, Form, Text } from '../../../parts/form.js';
import * as words from '../../../words/en/keys.js';

/** @param {Values} form @returns {Api.Privilege[]} */
const privileges = (form) => Object.entries(form).filter(([name, value]) => name.startsWith('group:') && value !== 'NO_ACCESS').map(([name, perm]) => ({ name: name.slice(6), perm }));

/** @param {Values} form */
const command = (form) => ['fieldbrook key create', quoted(form.name || 'NAME'), ...privileges(form).map(({ name, perm }) => `--grant ${quoted(`${name}=${perm}`)}`), `--days ${form.days ?? 30}`, form.desc ? `--description ${quoted(form.desc)}` : ''].filter(Boolean).join(' ');

/** @param {{made: Api.KeyReply}} p */
const Made = ({ made }) => html`<p>${words.shownOnce}</p><${Code} label=${words.theKey} text=${made.accessKey} plain />
  <h3>${words.useIt}</h3><${Code} label=${words.useIt} plain text=${`curl --header 'Authorization: Bearer ${made.accessKey}' ${location.origin}/srv-applet-mgr/v0/project`} />`;

/** @param {{groups: Api.GroupReply[]}} p */
const Grants = ({ groups }) => html`<fieldset class="grants"><legend>${words.grants}</legend><small class="dim">${words.grantsHint}</small>
  ${groups.map(({ name, desc }) => html`<label key=${name}><span>${name}<small class="dim">${desc}</small></span><select name=${`group:${name}`} aria-label=${name}>${Object.entries(words.permissions).map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></label>`)}</fieldset>`;

/** @param {{onClose: () => void, again: () => void}} p */
export function NewKey({ onClose, again }) {
  const groups = useLoad((get) => get('/account_access_key/operator_group_metas'), []);
  const [typed, type] = useState(/** @type {Values} */ ({}));
  const [made, set] = useState(/** @type {Api.KeyReply | null} */ (null));
  const work = async (/** @type {Values} */ form) => {
    set(await post('/account_access_key', { name: form.name, desc: form.desc, expirationDays: Number(form.days), privileges: privileges(form) }));
    again();
  };
  const note = (/** @type {any} */ event) => type(Object.fromEntries(new FormData(event.currentTarget.querySelector('form'))));
  return html`<${Dialog} title=${made ? made.name : words.create} onClose=${onClose} must=${!!made}>${made ? html`<${Made} made=${made} /><div class="form"><div class="end"><button type="button" class="primary" onClick=${onClose}>${words.copied}</button></div></div>` : html`<div onInput=${note} onChange=${note}><${Form} submit=${words.create} work=${work}>
      <div class="fields"><${Field} label=${words.name}><${Text} name="name" required autofocus maxlength="128" /><//>
        <${Field} label=${words.days}><select name="days">${words.lifetimes.map(([days, text]) => html`<option value=${days} selected=${days === 30}>${text}</option>`)}</select><//></div>
      <${Field} label=${words.description}><input name="desc" maxlength="1024" autocomplete="off" /><//>
      <${Show} of=${groups}>${(/** @type {Api.GroupReply[]} */ list) => html`<${Grants} groups=${list} />`}<//><//></div><${AsCommand} text=${command(typed)} />`}<//>`;
}
