// @ts-check
/** The strategies of an applet: which handler runs for which event type. */
import { html, useState } from '../../../vendor/preact.js';
import { post, put, remove, segment } from '../../../core/api.js';
import { useLoad } from '../../../core/load.js';
import { quoted } from '../../../core/format.js';
import { to } from '../../../core/route.js';
import { Badge, Do, Failed, Mark, Table, say } from '../../../parts/basics.js';
import { AsCommand } from '../../../parts/code.js';
import { Confirm, Dialog } from '../../../parts/dialog.js';
import { Field, Form, Text } from '../../../parts/form.js';
import * as words from '../../../words/en/applets.js';
import { actions, edit, remove as removeWord, save } from '../../../words/en/common.js';

/** @param {{project: string, applet: Api.AppletReply, rule: any, onClose: () => void, onDone: () => void}} p rule: null for a new one */
function StrategyDialog({ project, applet, rule, onClose, onDone }) {
  const versions = useLoad((get) => get(`/applet/data/${applet.appletID}/versions`), [applet.appletID, applet.version]);
  const handlers = versions.data?.data.find((one) => one.current)?.handlers ?? [];
  const work = async (/** @type {Values} */ form) => {
    const body = { appletID: applet.appletID, eventType: form.type.trim(), handler: form.handler.trim(), autoCollectMetric: form.collect === 'on' };
    if (rule) await put(`/strategy/${rule.strategyID}`, body);
    else await post(`/strategy/x/${segment(project)}`, body);
    say(words.strategySaved);
    onDone();
    onClose();
  };
  const list = `handlers-${applet.appletID}`;
  const command = rule ? `fieldbrook strategy update ${quoted(project)} ${rule.strategyID} --type TYPE --handler HANDLER` : `fieldbrook strategy add ${quoted(project)} --applet ${quoted(applet.name)} --type TYPE --handler HANDLER`;
  return html`<${Dialog} title=${rule ? words.editStrategy(rule.eventType) : words.addStrategy} onClose=${onClose}><${Form} submit=${save} work=${work}>
    <${Field} label=${words.eventType} hint=${words.eventTypeHint}><${Text} name="type" required autofocus defaultValue=${rule?.eventType ?? ''} autocapitalize="none" /><//>
    <${Field} label=${words.handler} hint=${words.handlerHint}><${Text} name="handler" required list=${list} defaultValue=${rule?.handler ?? 'start'} autocapitalize="none" /><//><datalist id=${list}>${handlers.map((/** @type {string} */ name) => html`<option value=${name} />`)}</datalist><${Failed} of=${versions} />
    <label class="check"><input name="collect" type="checkbox" defaultChecked=${rule?.autoCollectMetric ?? false} />${words.collect}</label><//><${AsCommand} text=${command} /><//>`;
}

/** @param {{project: string, applet: Api.AppletReply, again: () => void}} p */
export function Strategies({ project, applet, again }) {
  const [dialog, show] = useState(/** @type {{what: string, rule: any} | null} */ (null));
  const close = () => show(null);
  const rules = applet.strategies ?? [];
  const { type, handler, state } = words.strategyColumns;
  const row = (/** @type {Api.StrategyReply} */ rule) => html`<tr key=${rule.strategyID}><td><a href=${`${to('projects', project, 'events')}?type=${segment(rule.eventType)}`}>${rule.eventType}</a></td><td class="mono">${rule.handler}</td>
    <td><${Badge} kind=${rule.dead ? 'bad' : 'good'} title=${rule.warnings?.join('\n')}>${rule.dead ? words.dead : words.works}<//></td>
    <td class="end"><span class="row-actions"><${Mark} icon="edit" label=${words.editStrategy(rule.eventType)} title=${edit} onClick=${() => show({ what: 'edit', rule })} />
      <${Mark} icon="trash" label=${words.deleteStrategy(rule.eventType)} title=${removeWord} onClick=${() => show({ what: 'delete', rule })} /></span></td></tr>`;
  return html`${rules.length ? html`<${Table} label=${`${words.strategies}, ${applet.name}`} columns=${[type, handler, state, [actions, 'hidden']]}>${rules.map(row)}<//>` : html`<p class="note">${words.noStrategies}</p>`}
    <div class="bar thin"><${Do} icon="plus" class="ghost small" onClick=${() => show({ what: 'add', rule: null })}>${words.addStrategy}<//></div>
    ${dialog && dialog.what !== 'delete' && html`<${StrategyDialog} project=${project} applet=${applet} rule=${dialog.rule} onClose=${close} onDone=${again} />`}
    ${dialog?.what === 'delete' && html`<${Confirm} title=${words.deleteStrategy(dialog.rule.eventType)} text=${words.deleteStrategyText} submit=${removeWord} onClose=${close} work=${async () => { await remove(`/strategy/data/${dialog.rule.strategyID}`); say(words.strategyDeleted); again(); }} />`}`;
}
