// @ts-check
/** Who signs a project's transactions, and what they may cost. */
import { html, useState } from '../../../vendor/preact.js';
import { get, post, put, remove } from '../../../core/api.js';
import { attempt, useLoad } from '../../../core/load.js';
import { quoted } from '../../../core/format.js';
import { Card, Copy, Show, say, typed } from '../../../parts/basics.js';
import { AsCommand } from '../../../parts/code.js';
import { Field, Form } from '../../../parts/form.js';
import * as words from '../../../words/en/project_settings.js';
import { save } from '../../../words/en/common.js';

const DEFAULT = 'default';
const DECIMALS = 18;

/** Wei as coins, exactly. @param {string} wei */
function coins(wei) {
  if (!/^\d+$/.test(wei)) return '';
  const digits = wei.padStart(DECIMALS + 1, '0');
  const whole = digits.slice(0, -DECIMALS).replace(/^0+(?=\d)/, '');
  const rest = digits.slice(-DECIMALS).replace(/0+$/, '');
  return rest ? `${whole}.${rest}` : whole;
}

/** @param {string} name @param {string} id @param {AbortSignal} signal */
async function load(name, id, signal) {
  const [used, known, sending, boot] = await Promise.all([get(`/project_operator/data/${id}`, {}, { signal }), get('/operator/datalist', { size: 200 }, { signal }), get(`/tx/${encodeURIComponent(name)}/state`, {}, { signal }), get('/configuration/dashboard', {}, { signal })]);
  return { used, known: known.data, wei: sending.weiPerDay ?? '', chains: boot.chains };
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
  return html`<${Field} label=${words.useOperator}><select disabled=${foreign} onChange=${choose}>${(foreign ? [used] : known).map((one) => html`<option value=${one.operatorID} selected=${one.operatorID === used.operatorID}>${words.operatorOption(one.name, one.address)}</option>`)}</select></${Field}>
    <dl class="pairs"><dt>${words.address}</dt><dd class="mono">${used.address} <${Copy} text=${used.address} /></dd></dl><${AsCommand} text=${`fieldbrook operator use ${quoted(name)} OPERATOR\nfieldbrook operator release ${quoted(name)}`} />`;
}

/** @param {{name: string, wei: string, again: () => void}} p */
function Spending({ name, wei, again }) {
  const [text, type] = useState(wei);
  const work = async (/** @type {Record<string, any>} */ form) => {
    await post(`/project_config/x/${encodeURIComponent(name)}/PROJECT_SPENDING`, { weiPerDay: form.wei.trim() });
    say(words.spendingSaved);
    again();
  };
  return html`<h3>${words.spending}</h3><p class="hint">${words.spendingText} ${!wei && words.noLimit}</p><${Form} submit=${save} work=${work}><${Field} label=${words.wei} hint=${coins(text.trim()) ? words.coins(coins(text.trim())) : words.notWhole}><input name="wei" required pattern="[0-9]{1,78}" inputmode="numeric" class="mono" defaultValue=${wei} autocomplete="off" onInput=${typed(type)} /></${Field}></${Form}><${AsCommand} text=${`fieldbrook tx limit ${quoted(name)} WEI`} />`;
}

/** @param {{name: string, id: string}} p */
export function Operator({ name, id }) {
  const loaded = useLoad((signal) => load(name, id, signal), [name, id]);
  return html`<${Card} title=${words.operator}><${Show} of=${loaded}>${(/** @type {any} */ { used, known, wei, chains }) => html`<div class="pad stack"><p class="hint">${words.operatorText}${!chains.length && ` ${words.noChains}`}</p>
    <${Choice} name=${name} id=${id} used=${used} known=${known} again=${loaded.again} /><${Spending} name=${name} wei=${wei} again=${loaded.again} /></div>`}</${Show}></${Card}>`;
}
