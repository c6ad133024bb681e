// @ts-check
/** Access keys, and one's own account. */
import { html, useState } from '../../vendor/preact.js';
import { remove, segment } from '../../core/api.js';
import { useLoad } from '../../core/load.js';
import { day } from '../../core/format.js';
import { filter, query } from '../../core/route.js';
import { Ago, Badge, Card, Do, Empty, Heading, Mark, Show, Table, say } from '../../parts/basics.js';
import { AsCommand } from '../../parts/code.js';
import { Confirm } from '../../parts/dialog.js';
import * as words from '../../words/en/keys.js';
import * as common from '../../words/en/common.js';
import { NewKey } from './keys/create.js';
import { OwnAccount } from './keys/own.js';

const NAMED = 3; // permissions named in a row
const COLUMNS = [words.columns.name, words.columns.grants, words.columns.used, words.columns.expires, words.columns.created, [common.actions, 'hidden']];

/** @param {{list: Api.PrivilegeReply[]}} p */
function Grants({ list }) {
  const granted = list.filter(({ perm }) => perm !== 'NO_ACCESS');
  if (!granted.length) return html`<span class="dim">${words.noGrants}</span>`;
  if (granted.length === list.length && granted.every(({ perm }) => perm === 'READ_WRITE')) return html`<${Badge} kind="warn">${words.allGrants}<//>`;
  return html`<span class="line" title=${granted.map(({ name, perm }) => `${name}: ${words.permissions[perm]}`).join('\n')}>${granted.slice(0, NAMED).map(({ name, perm }) => html`<${Badge} kind=${perm === 'READONLY' ? '' : 'info'}>${name}<//>`)}${granted.length > NAMED && html`<span class="dim">${words.moreGrants(granted.length - NAMED)}</span>`}</span>`;
}

/** @param {{row: Api.KeyReply, onRemove: () => void}} p */
const Row = ({ row, onRemove }) => html`<tr><td><strong>${row.name}</strong> <span class="dim">${row.desc ?? ''}</span> ${row.identityType === 'PUBLISHER' && html`<${Badge}>${words.ofPublisher}<//>`}</td><td><${Grants} list=${row.privileges} /></td>
  <td class="dim">${row.lastUsed ? html`<${Ago} at=${row.lastUsed} />` : words.never}</td><td>${!row.expiredAt ? html`<span class="dim">${words.never}</span>` : Date.parse(row.expiredAt) < Date.now() ? html`<${Badge} kind="bad">${words.expired}<//>` : html`<span class="nowrap"><${Ago} at=${row.expiredAt} /></span>`}</td>
  <td class="dim nowrap">${day(row.createdAt)}</td><td class="end"><${Mark} icon="trash" kind="square small" label=${words.removeTitle(row.name)} onClick=${onRemove} /></td></tr>`;

export function Page() {
  const keys = useLoad((get) => get('/account_access_key/datalist', { size: 1000 }), [], 30_000);
  const [gone, set] = useState(/** @type {Api.KeyReply | null} */ (null));
  const drop = async (/** @type {string} */ name) => {
    await remove(`/account_access_key/${segment(name)}`);
    say(words.removed(name));
    keys.again();
  };
  const list = (/** @type {Api.KeyPage} */ { data }) => (data.length ? html`<${Table} label=${words.title} columns=${COLUMNS}>${data.map((row) => html`<${Row} key=${row.name} row=${row} onRemove=${() => set(row)} />`)}<//>` : html`<${Empty} title=${words.none} icon="key">${words.noneHint}<//>`);
  return html`<div class="page"><${Heading} title=${words.title} text=${words.text}><${Do} icon="plus" class="primary" onClick=${() => filter({ new: true })}>${words.create}<//><//>
    <${Card}><${Show} of=${keys}>${list}<//><//><${AsCommand} text="fieldbrook key list" /><${OwnAccount} />
    ${query.value.new && html`<${NewKey} onClose=${() => filter({ new: '' })} again=${keys.again} />`}
    ${gone && html`<${Confirm} title=${words.removeTitle(gone.name)} text=${words.removeText} submit=${common.remove} onClose=${() => set(null)} work=${() => drop(gone.name)} />`}</div>`;
}
