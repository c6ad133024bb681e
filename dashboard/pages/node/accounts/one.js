// @ts-check
/** One account: what it may have, and what an administrator can do with it. */
import { html, useState } from '../../../vendor/preact.js';
import { post, put, remove, segment } from '../../../core/api.js';
import { attempt, useLoad } from '../../../core/load.js';
import { day, quoted } from '../../../core/format.js';
import { session } from '../../../core/session.js';
import { Badge, Show, say, typed } from '../../../parts/basics.js';
import { AsCommand, Code } from '../../../parts/code.js';
import { Confirm, Dialog } from '../../../parts/dialog.js';
import { Field, Form } from '../../../parts/form.js';
import * as words from '../../../words/en/accounts.js';
import * as common from '../../../words/en/common.js';
import { Quotas } from './quotas.js';

/** @param {{account: Api.AccountReply, onClose: () => void}} p */
function SetPassword({ account, onClose }) {
  const [made, set] = useState('');
  const work = async (/** @type {Values} */ { password }) => {
    const changed = await put(`/account/${account.accountID}/password`, password ? { password } : {});
    say(words.passwordSet);
    if (changed.password) set(changed.password);
    else onClose();
  };
  return html`<${Dialog} title=${words.setPassword} onClose=${onClose}>${made ? html`<p>${words.shownOnce}</p><${Code} label=${words.generated} text=${made} plain />` : html`<${Form} submit=${words.setPassword} work=${work}><p>${words.setPasswordText}</p>
    <${Field} label=${words.password} hint=${words.passwordHint}><input name="password" type="password" autofocus minlength="8" autocomplete="new-password" /><//><//>`}<${AsCommand} text=${`fieldbrook account password ${quoted(account.username)}`} /><//>`;
}

/** @param {{account: Api.AccountReply, row: Api.QuotaReply, onClose: () => void, again: () => void}} p */
function Limit({ account, row, onClose, again }) {
  const [kind, choose] = useState(row.unlimited ? 'unlimited' : row.from === 'ACCOUNT' ? 'own' : 'default');
  const work = async (/** @type {Values} */ { limit }) => {
    await put(`/account/${account.accountID}/quota`, { quotas: [{ name: /** @type {Api.ChangedQuota['name']} */ (row.name), ...(kind === 'own' ? { limit: Number(limit) } : kind === 'unlimited' ? { unlimited: true } : {}) }] });
    say(words.limitChanged);
    again();
  };
  return html`<${Dialog} title=${words.changeLimitOf(row.desc)} onClose=${onClose}><${Form} submit=${common.save} work=${work} onDone=${onClose}>
      <${Field} label=${words.which}><select autofocus value=${kind} onChange=${typed(choose)}>${Object.entries(words.limitKinds).map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select><//>
      ${kind === 'own' && html`<${Field} label=${words.limit} hint=${row.name === 'bytes' ? words.bytesHint : ''}><input name="limit" type="number" min="0" required defaultValue=${row.limit ?? row.used} /><//>`}<//>
    <${AsCommand} text=${`fieldbrook account quota ${quoted(account.username)} --set ${row.name}=${kind === 'own' ? 'LIMIT' : kind}`} /><//>`;
}

/** @param {{account: Api.AccountReply, act: (what: string) => void}} p */
function Actions({ account, act }) {
  const own = account.accountID === session.value?.accountID;
  const button = (/** @type {string} */ what, /** @type {string} */ text, danger = false) => html`<button type="button" class=${danger ? 'danger' : ''} onClick=${() => act(what)}>${text}</button>`;
  return html`<div class="line">${!own && button('password', words.setPassword)}${button('logins', words.endLogins)}${button('role', words.changeRole)}
    ${account.state === 'ENABLED' ? button('disable', words.disable) : button('enable', words.enable)}${!own && button('remove', common.remove, true)}</div>`;
}

/** @param {{account: Api.AccountReply, onClose: () => void, again: () => void}} p */
export function Account({ account, onClose, again }) {
  const id = account.accountID;
  const quotas = useLoad((get) => get(`/account/${id}/quota`), [id]);
  const [open, set] = useState(/** @type {{what: string, row?: Api.QuotaReply} | null} */ (null));
  const close = () => set(null);
  const done = (/** @type {string} */ text) => {
    say(text);
    again();
  };
  const other = account.role === 'ADMIN' ? 'DEVELOPER' : 'ADMIN';
  const confirms = /** @type {Values} */ ({
    disable: { title: words.disableTitle(account.username), text: words.disableText, submit: words.disable, work: async () => { await put(`/account/${id}/disable`); done(words.disabledToast(account.username)); } },
    logins: { title: words.endLogins, text: words.endLoginsText, submit: words.endLogins, work: async () => { await post(`/account/${id}/logout`); done(words.loginsEnded); } },
    role: { title: `${words.changeRole}: ${words.roles[other]}`, text: words.roleHints[other], submit: words.roles[other], work: async () => { await put(`/account/${id}/role`, { role: other }); done(words.roleChanged(account.username, words.roles[other])); } },
    remove: { title: words.removeTitle(account.username), text: words.removeText(account.projects ?? 0), submit: common.remove, name: account.username, work: async () => { await remove(`/account/${id}`, { force: (account.projects ?? 0) > 0 }); done(words.removed(account.username)); onClose(); } },
  });
  const act = (/** @type {string} */ what) => {
    if (what !== 'enable') return set({ what });
    return attempt(() => put(`/account/${id}/enable`), words.enabledToast(account.username)).then(again);
  };
  return html`<${Dialog} side title=${account.username} onClose=${onClose}>
      <div class="line"><${Badge} kind=${account.role === 'ADMIN' ? 'info' : ''}>${words.roles[account.role]}<//><${Badge} kind=${account.state === 'ENABLED' ? 'good' : 'bad'}>${account.state === 'ENABLED' ? words.enabled : words.disabled}<//><span class="dim">${words.id} <span class="mono">${id}</span> · ${day(account.createdAt)}</span></div>
      <${Actions} account=${account} act=${act} /><a href=${`/node/audit?account=${segment(account.username)}`}>${words.whatTheyDid}</a>
      <h3>${words.quotas}</h3><${Show} of=${quotas}>${(/** @type {Api.QuotasReply} */ { data }) => html`<${Quotas} list=${data} edit=${(/** @type {Api.QuotaReply} */ row) => set({ what: 'limit', row })} />`}<//>
      <${AsCommand} text=${`fieldbrook account show ${quoted(account.username)}`} /><//>
    ${open?.what === 'password' && html`<${SetPassword} account=${account} onClose=${close} />`}
    ${open?.what === 'limit' && html`<${Limit} account=${account} row=${open.row} onClose=${close} again=${quotas.again} />`}
    ${open && confirms[open.what] && html`<${Confirm} ...${confirms[open.what]} onClose=${close} />`}`;
}
