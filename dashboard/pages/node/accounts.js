// @ts-check
/** The accounts of the node, for administrators. */
import { html, useState } from '../../vendor/preact.js';
import { post } from '../../core/api.js';
import { useLoad } from '../../core/load.js';
import { count, day, quoted } from '../../core/format.js';
import { filter, go, query, to } from '../../core/route.js';
import { session } from '../../core/session.js';
import { Badge, Card, Do, Empty, Heading, Show, Table, say, typed } from '../../parts/basics.js';
import { AsCommand, Code } from '../../parts/code.js';
import { Dialog } from '../../parts/dialog.js';
import { Field, Form, Text } from '../../parts/form.js';
import * as words from '../../words/en/accounts.js';
import { Account } from './accounts/one.js';

const COLUMNS = [words.columns.name, words.columns.role, words.columns.state, [words.columns.projects, 'num'], words.columns.created];
const isWallet = (/** @type {string} */ name) => /^0x[0-9a-fA-F]{40}$/.test(name);

/** @param {{onClose: () => void, again: () => void}} p */
function NewAccount({ onClose, again }) {
  const [name, type] = useState('');
  const [role, choose] = useState(/** @type {Api.ChangeRole['role']} */ ('DEVELOPER'));
  const [made, set] = useState('');
  const work = async (/** @type {Values} */ { username, password }) => {
    const account = await post('/register/admin', { username, role, ...(password ? { password } : {}) });
    say(words.created(username));
    again();
    if (account.password) set(account.password);
    else onClose();
  };
  return html`<${Dialog} title=${words.create} onClose=${onClose} must=${!!made}>${made ? html`<p>${words.shownOnce}</p><${Code} label=${words.generated} text=${made} plain /><div class="form"><div class="end"><button type="button" class="primary" onClick=${onClose}>${words.done}</button></div></div>` : html`<${Form} submit=${words.create} work=${work}>
      <${Field} label=${words.username}><${Text} name="username" required autofocus autocapitalize="none" onInput=${typed(type)} /><//>
      <${Field} label=${words.role} hint=${words.roleHints[role]}><select value=${role} onChange=${typed(choose)}>${Object.entries(words.roles).map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select><//>
      <${Field} label=${words.password} hint=${words.passwordHint}><input name="password" type="password" minlength="8" autocomplete="new-password" /><//><//>
    <${AsCommand} text=${`fieldbrook account create ${quoted(name || 'USERNAME')} --role ${role.toLowerCase()}`} />`}<//>`;
}

/** @param {{row: Api.AccountReply}} p */
const Row = ({ row }) => html`<tr><td><a href=${to('node', 'accounts', row.accountID)} class=${isWallet(row.username) ? 'mono' : ''}>${row.username}</a> ${row.accountID === session.value?.accountID && html`<${Badge}>${words.you}<//>`}${isWallet(row.username) && html`<${Badge}>${words.wallet}<//>`}</td>
  <td><${Badge} kind=${row.role === 'ADMIN' ? 'info' : ''}>${words.roles[row.role]}<//></td><td><${Badge} kind=${row.state === 'ENABLED' ? 'good' : 'bad'}>${row.state === 'ENABLED' ? words.enabled : words.disabled}<//></td>
  <td class="num">${count(row.projects)}</td><td class="dim">${day(row.createdAt)}</td></tr>`;

/** @param {{more: string}} p more: the id of the account that is open */
export function Page({ more }) {
  const accounts = useLoad((get) => get('/account', { size: 10_000 }), []);
  const wanted = (query.value.name ?? '').toLowerCase();
  const open = accounts.data?.data.find((one) => one.accountID === more);
  const list = (/** @type {Api.AccountPage} */ { data }) => {
    const rows = data.filter((one) => one.username.toLowerCase().includes(wanted));
    return rows.length ? html`<${Table} label=${words.title} columns=${COLUMNS}>${rows.map((row) => html`<${Row} key=${row.accountID} row=${row} />`)}<//>` : html`<${Empty} title=${words.none} icon="people" />`;
  };
  return html`<div class="page"><${Heading} title=${words.title} text=${words.text}><${Do} icon="plus" class="primary" onClick=${() => filter({ new: true })}>${words.create}<//><//>
    <${Card} controls=${html`<input type="search" placeholder=${words.find} aria-label=${words.find} defaultValue=${query.value.name ?? ''} onInput=${typed((v) => filter({ name: v }))} />`} title=${words.title}><${Show} of=${accounts}>${list}<//><//><${AsCommand} text="fieldbrook account list" />
    ${query.value.new && html`<${NewAccount} onClose=${() => filter({ new: '' })} again=${accounts.again} />`}
    ${open && html`<${Account} key=${open.accountID} account=${open} again=${accounts.again} onClose=${() => go(to('node', 'accounts'))} />`}</div>`;
}
