// @ts-check
/** One's own account: how one signs in, what one uses. */
import { html, useState } from '../../../vendor/preact.js';
import { post, put } from '../../../core/api.js';
import { useLoad } from '../../../core/load.js';
import { day } from '../../../core/format.js';
import { keep, session, sessionOf } from '../../../core/session.js';
import { Badge, Card, Copy, Do, Show, say } from '../../../parts/basics.js';
import { AsCommand } from '../../../parts/code.js';
import { Confirm, Dialog } from '../../../parts/dialog.js';
import { Field, Form } from '../../../parts/form.js';
import * as words from '../../../words/en/keys.js';
import { Quotas } from '../accounts/quotas.js';

/** @param {{onClose: () => void}} p */
function ChangePassword({ onClose }) {
  const work = async (/** @type {Values} */ { old, password, again }) => {
    if (password !== again) throw new Error(words.notSame);
    const login = await put('/account', { oldPassword: old, password });
    keep(sessionOf(login, session.value?.name ?? ''));
    say(words.passwordChanged);
  };
  const field = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ complete, hint = '', focus = false) => html`<${Field} label=${label} hint=${hint}><input name=${name} type="password" required autofocus=${focus} minlength=${name === 'old' ? undefined : 8} autocomplete=${complete} /><//>`;
  return html`<${Dialog} title=${words.changePassword} onClose=${onClose}><${Form} submit=${words.changePassword} work=${work} onDone=${onClose}>
    ${field('old', words.oldPassword, 'current-password', '', true)}${field('password', words.newPassword, 'new-password', words.passwordHint)}${field('again', words.repeatPassword, 'new-password')}<//><${AsCommand} text="fieldbrook admin password" /><//>`;
}

export function OwnAccount() {
  const own = useLoad((get) => Promise.all([get(`/account/${session.value?.accountID}`), get('/quota')]), [session.value?.accountID]);
  const [open, set] = useState('');
  const close = () => set('');
  const content = (/** @type {[Api.AccountReply, Api.QuotasReply]} */ [account, quotas]) => {
    const wallet = /^0x[0-9a-fA-F]{40}$/.test(account.username);
    return html`<dl class="facts"><div><dt>${wallet ? words.wallet : words.username}</dt><dd class=${wallet ? 'mono' : ''}>${account.username} ${wallet && html`<${Copy} text=${account.username} />`}<small class="dim">${wallet ? words.walletHint : words.passwordOnly}</small></dd></div>
        <div><dt>${words.role}</dt><dd><${Badge}>${account.role.toLowerCase()}<//></dd></div><div><dt>${words.since}</dt><dd>${day(account.createdAt)}</dd></div></dl>
      <details class="pad"><summary>${words.quotas}</summary><${Quotas} list=${quotas.data} /></details>`;
  };
  const wallet = session.value?.name.startsWith('0x');
  return html`<${Card} title=${words.account} controls=${html`${!wallet && html`<${Do} icon="key" onClick=${() => set('password')}>${words.changePassword}<//>`}<${Do} icon="leave" onClick=${() => set('end')}>${words.endLogins}<//>`}><${Show} of=${own}>${content}<//><//>
    ${open === 'password' && html`<${ChangePassword} onClose=${close} />`}
    ${open === 'end' && html`<${Confirm} title=${words.endLogins} text=${words.endLoginsText} submit=${words.endLogins} onClose=${close} work=${async () => { await post('/logout'); keep(null); }} />`}`;
}
