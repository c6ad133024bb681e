// @ts-check
/** Operators: keys of the account that sign transactions. */
import { html, useState } from '../../../vendor/preact.js';
import { post, remove } from '../../../core/api.js';
import { useLoad } from '../../../core/load.js';
import { quoted } from '../../../core/format.js';
import { isAdmin } from '../../../core/session.js';
import { Ago, Badge, Card, Copy, Do, Mark, Show, Table, say, typed } from '../../../parts/basics.js';
import { AsCommand, Code } from '../../../parts/code.js';
import { Confirm, Dialog } from '../../../parts/dialog.js';
import { Field, Form, Text } from '../../../parts/form.js';
import * as words from '../../../words/en/chains.js';
import * as common from '../../../words/en/common.js';

const COLUMNS = [words.operatorColumns.name, words.operatorColumns.address, words.operatorColumns.type, words.operatorColumns.created, [common.actions, 'hidden']];

/** @param {{imports: boolean, onClose: () => void, again: () => void}} p */
function NewOperator({ imports, onClose, again }) {
  const [name, type] = useState('');
  const work = async (/** @type {Values} */ form) => {
    if (imports) await post('/operator', { name: form.name, privateKey: form.privateKey.trim(), type: Number(form.type) });
    else await post('/operator/generate', { name: form.name });
    say(words.made(form.name));
    again();
  };
  return html`<${Dialog} title=${imports ? words.importKey : words.generate} onClose=${onClose}><${Form} submit=${imports ? words.importKey : words.generate} work=${work} onDone=${onClose}>
      <${Field} label=${words.name}><${Text} name="name" required autofocus onInput=${typed(type)} /><//>
      ${imports && html`<${Field} label=${words.privateKey} hint=${words.keyHint}><input name="privateKey" type="password" required autocomplete="off" /><//>
        <${Field} label=${words.kind}><select name="type">${words.operatorTypes.map((text, i) => i > 0 && html`<option value=${i}>${text}</option>`)}</select><//>`}<//>
    <${AsCommand} text=${imports ? `fieldbrook operator create ${quoted(name || 'NAME')}` : `fieldbrook operator generate ${quoted(name || 'NAME')}`} /><//>`;
}

/** @param {{operator: Api.OperatorReply, onClose: () => void}} p */
function Export({ operator, onClose }) {
  const [key, set] = useState('');
  const work = async (/** @type {Values} */ { password }) => set((await post(`/operator/data/${operator.operatorID}/export`, { password })).privateKey ?? '');
  return html`<${Dialog} title=${words.exportTitle(operator.name)} onClose=${onClose}>${key ? html`<${Code} label=${words.exported} text=${key} plain />` : html`<${Form} submit=${words.exportKey} work=${work} danger>
      <p>${words.exportText}</p><${Field} label=${words.yourPassword}><input name="password" type="password" required autofocus autocomplete="current-password" /><//><//>`}
    <${AsCommand} text=${`fieldbrook operator export ${quoted(operator.name)}`} /><//>`;
}

export function Operators() {
  const operators = useLoad((get) => get('/operator/datalist', { size: 1000 }), []);
  const [open, set] = useState(/** @type {{what: string, operator?: Api.OperatorReply} | null} */ (null));
  const close = () => set(null);
  const drop = async (/** @type {Api.OperatorReply} */ gone) => {
    await remove(`/operator/data/${gone.operatorID}`);
    say(words.removed(gone.name));
    operators.again();
  };
  const row = (/** @type {Api.OperatorReply} */ one) => html`<tr key=${one.operatorID}><td><strong>${one.name}</strong> ${one.name === 'default' && html`<${Badge} title=${words.isDefault}>${words.byDefault}<//>`}</td><td class="mono nowrap">${one.address}<${Copy} text=${one.address} /></td>
    <td><${Badge}>${words.operatorTypes[one.type]}<//></td><td class="dim nowrap"><${Ago} at=${one.createdAt} /></td>
    <td class="end">${isAdmin() && html`<button type="button" class="ghost small" onClick=${() => set({ what: 'export', operator: one })}>${words.exportKey}</button>`}<${Mark} icon="trash" kind="square small" label=${words.removeTitle(one.name)} onClick=${() => set({ what: 'remove', operator: one })} /></td></tr>`;
  return html`<${Card} title=${words.operators} controls=${html`<button type="button" onClick=${() => set({ what: 'import' })}>${words.importKey}</button><${Do} icon="plus" onClick=${() => set({ what: 'generate' })}>${words.generate}<//>`}>
      <${Show} of=${operators}>${(/** @type {any} */ { data }) => html`<${Table} label=${words.operators} columns=${COLUMNS}>${data.map(row)}<//>`}<//><//>
    ${(open?.what === 'import' || open?.what === 'generate') && html`<${NewOperator} imports=${open.what === 'import'} onClose=${close} again=${operators.again} />`}
    ${open?.what === 'export' && html`<${Export} operator=${open.operator} onClose=${close} />`}
    ${open?.what === 'remove' && open.operator && html`<${Confirm} title=${words.removeTitle(open.operator.name)} text=${words.removeText} submit=${common.remove} name=${open.operator.name} onClose=${close} work=${drop.bind(null, open.operator)} />`}`;
}
