// @ts-check
/** Who signs a project's transactions, and what they may cost. */
import { html, useState } from '../../../vendor/preact.js';
import { put, remove, segment } from '../../../core/api.js';
import { attempt, useLoad } from '../../../core/load.js';
import { quoted } from '../../../core/format.js';
import { amount } from '../../../core/units.js';
import { Card, Copy, Show } from '../../../parts/basics.js';
import { AsCommand } from '../../../parts/code.js';
import { Field } from '../../../parts/form.js';
import { SpendingLimit } from '../transactions/spending.js';
import * as words from '../../../words/en/project_settings.js';
import { setLimit } from '../../../words/en/transactions.js';

const DEFAULT = 'default';

/** @param {string} name @param {string} id @param {Get} get */
async function load(name, id, get) {
  const [used, known, sending, boot] = await Promise.all([get(`/project_operator/data/${id}`), get('/operator/datalist', { size: 200 }), get(`/tx/${segment(name)}/state`), get('/configuration/dashboard')]);
  return { used, known: known.data, wei: sending.weiPerDay, chains: boot.chains };
}

/** @param {{name: string, id: string, used: Api.OperatorReply, known: Api.OperatorReply[], again: () => void}} p */
function Choice({ name, id, used, known, again }) {
  const foreign = !known.some((one) => one.operatorID === used.operatorID); // of another account, for administrators
  const choose = (/** @type {any} */ event) => attempt(async () => {
    const chosen = known.find((one) => one.operatorID === event.target.value);
    if (!chosen) return;
    if (chosen.name === DEFAULT) await remove(`/project_operator/${id}`);
    else await put(`/project_operator/${id}/${chosen.operatorID}`);
    again();
  }, words.operatorChanged);
  return html`<${Field} label=${words.useOperator}><select disabled=${foreign} onChange=${choose}>${(foreign ? [used] : known).map((one) => html`<option value=${one.operatorID} selected=${one.operatorID === used.operatorID}>${words.operatorOption(one.name, one.address)}</option>`)}</select><//>
    <dl class="pairs"><dt>${words.address}</dt><dd class="mono">${used.address} <${Copy} text=${used.address} /></dd></dl><${AsCommand} text=${`fieldbrook operator use ${quoted(name)} OPERATOR\nfieldbrook operator release ${quoted(name)}`} />`;
}

/** @param {{name: string, id: string}} p */
export function Operator({ name, id }) {
  const loaded = useLoad((get) => load(name, id, get), [name, id]);
  const [open, set] = useState(false);
  return html`<${Card} title=${words.operator}><${Show} of=${loaded}>${(/** @type {any} */ { used, known, wei, chains }) => html`<div class="pad stack"><p class="hint">${words.operatorText}${!chains.length && ` ${words.noChains}`}</p>
    <${Choice} name=${name} id=${id} used=${used} known=${known} again=${loaded.again} /><div class="line"><span>${words.spending}</span><strong title=${wei && `${wei} wei`}>${wei == null ? words.noLimit : words.perDay(amount(wei))}</strong><button type="button" class="small" onClick=${() => set(true)}>${setLimit}</button></div>${open && html`<${SpendingLimit} name=${name} limit=${wei} again=${loaded.again} onClose=${() => set(false)} />`}</div>`}<//><//>`;
}
