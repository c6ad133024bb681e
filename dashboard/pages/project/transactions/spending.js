// @ts-check
/** What a project's transactions cost, by chain, and its limit per day. */
import { html, useState } from '../../../vendor/preact.js';
import { post, segment } from '../../../core/api.js';
import { quoted } from '../../../core/format.js';
import { amount } from '../../../core/units.js';
import { Card, say, typed } from '../../../parts/basics.js';
import { AsCommand } from '../../../parts/code.js';
import { Dialog } from '../../../parts/dialog.js';
import { Field, Form, Text } from '../../../parts/form.js';
import * as words from '../../../words/en/transactions.js';

/** @param {{name: string, limit: string | null, onClose: () => void, again: () => void}} p */
export function SpendingLimit({ name, limit, onClose, again }) {
  const [text, type] = useState(limit ?? '');
  const work = async (/** @type {Values} */ { wei }) => {
    await post(`/project_config/x/${segment(name)}/PROJECT_SPENDING`, { weiPerDay: wei });
    say(words.limitSet);
    again();
  };
  return html`<${Dialog} title=${words.setLimit} onClose=${onClose}><${Form} submit=${words.setLimit} work=${work} onDone=${onClose}><${Field} label=${words.limitPerDay} hint=${words.limitHint(amount(text))}><${Text} name="wei" required autofocus class="mono" inputmode="numeric" pattern="[0-9]{1,78}" defaultValue=${text} onInput=${typed(type)} /><//><//>
    <${AsCommand} text=${`fieldbrook tx limit ${quoted(name)} ${text || 'WEI'}`} /><//>`;
}

/** @param {{name: string, state: Api.TransactionState, chains: Map<number, Api.ChainReply>, again: () => void}} p state: as `GET /tx/P/state` answers it */
export function Spending({ name, state, chains, again }) {
  const [open, set] = useState(false);
  const limit = state.weiPerDay;
  const spent = state.data.reduce((/** @type {bigint} */ all, one) => all + BigInt(one.spentTodayWei), 0n);
  const share = limit && BigInt(limit) > 0n ? Math.min(1, Number((spent * 1000n) / BigInt(limit)) / 1000) : 0;
  return html`<${Card} title=${words.spending} controls=${html`<button type="button" class="small" onClick=${() => set(true)}>${words.setLimit}</button>`}>
    <dl class="facts"><div><dt>${words.spentToday}</dt><dd><strong title=${`${spent} wei`}>${amount(String(spent))}</strong> <span class="dim">${limit == null ? words.noLimit : words.ofLimit(amount(limit))}</span>${limit != null && html`<div><span class=${`meter ${share >= 1 ? 'bad' : ''}`}><i style=${{ width: `${share * 100}%` }}></i></span></div>`}</dd></div>
      ${state.data.map((one) => html`<div key=${one.chainID}><dt>${chains.get(one.chainID)?.name ?? one.chainID}</dt><dd>${words.counted(one)}<small class="dim">${words.spentEver}: ${amount(one.feesWei)}</small></dd></div>`)}</dl>
    ${open && html`<${SpendingLimit} name=${name} limit=${limit} again=${again} onClose=${() => set(false)} />`}<//>`;
}
