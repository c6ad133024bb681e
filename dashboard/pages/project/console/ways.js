// @ts-check
/** How the console's event is sent: over HTTP, over MQTT, or not at all. */
import { html, useState } from '../../../vendor/preact.js';
import { useLoad } from '../../../core/load.js';
import { quoted } from '../../../core/format.js';
import { Failed, Icon, typed } from '../../../parts/basics.js';
import { AsCommand, Code } from '../../../parts/code.js';
import { Field } from '../../../parts/form.js';
import { addresses, curl, mosquitto } from '../publishers/snippets.js';
import * as words from '../../../words/en/console.js';

/** Applet, version and handler of a dry run. @typedef {{appletID: string, handler: string, version: number, withState: boolean}} What */

/**
 * What a dry run would run: what was chosen, completed by the strategies of the type and the
 * applet's current version. It is computed anew for each drawing; an effect that stored it could
 * take turns with a choice for ever.
 * @param {Api.AppletReply[]} applets @param {string} type @param {boolean} dry nothing is loaded without it
 */
export function useDryRun(applets, type, dry) {
  const [chosen, choose] = useState(/** @type {Partial<What>} */ ({}));
  const applet = applets.find((one) => one.appletID === chosen.appletID) ?? applets.find((one) => one.strategies.some((rule) => rule.eventType === type)) ?? applets[0];
  const id = dry ? applet?.appletID : undefined;
  const versions = useLoad(async (get) => (id ? (await get(`/applet/data/${id}/versions`)).data : []), [id, applet?.version]);
  const version = versions.data?.find((one) => one.version === chosen.version) ?? versions.data?.find((one) => one.current);
  const named = applet?.strategies.find((rule) => rule.eventType === type) ?? applet?.strategies[0];
  const handlers = version?.handlers ?? [];
  const handler = [chosen.handler, named?.handler, ...handlers].find((/** @type {any} */ name) => handlers.includes(name));
  const withState = chosen.withState ?? true;
  const what = applet && version && handler ? { appletID: applet.appletID, version: version.version, handler, withState } : null;
  const pick = (/** @type {Partial<What>} */ change) => choose((old) => ({ ...old, ...change }));
  return { what, applet, versions, version, handlers, handler, withState, pick };
}

/** @param {{applets: Api.AppletReply[], of: ReturnType<typeof useDryRun>}} p */
export function DryRun({ applets, of: { applet, versions, version, handlers, handler, withState, pick } }) {
  if (!applet) return html`<p class="hint">${words.noApplet}</p>`;
  return html`<p class="hint">${words.dryText}</p><div class="fields">
    <${Field} label=${words.applet}><select onChange=${typed((v) => pick({ appletID: v, version: 0 }))}>${applets.map((one) => html`<option value=${one.appletID} selected=${one === applet}>${one.name}</option>`)}</select><//>
    <${Field} label=${words.version}><select onChange=${typed((v) => pick({ version: Number(v) }))}>${versions.data?.map((one) => html`<option value=${one.version} selected=${one === version}>${words.versionOption(one.version, one.current)}</option>`)}</select><//>
    <${Field} label=${words.handler}><select onChange=${typed((v) => pick({ handler: v }))}>${handlers.map((/** @type {string} */ name) => html`<option value=${name} selected=${name === handler}>${name}</option>`)}</select><//></div><${Failed} of=${versions} />
    <label class="check"><input type="checkbox" checked=${withState} onChange=${(/** @type {any} */ e) => pick({ withState: e.target.checked })} />${words.withState}</label>`;
}

/** @param {{project: string, applets: Api.AppletReply[], what: What, draft: import('./kept.js').Draft}} p */
export function DryCommand({ project, applets, what, draft }) {
  const name = applets.find((one) => one.appletID === what.appletID)?.name ?? '';
  const state = what.withState ? '' : ' --without-state';
  return html`<${AsCommand} text=${`fieldbrook applet dry-run ${quoted(project)} ${quoted(name)} --handler ${quoted(what.handler)} --type ${quoted(draft.type || 'DEFAULT')} --payload ${quoted(draft.text)}${state}`} />`;
}

/** @param {{project: string, publisher: Api.PublisherReply, draft: import('./kept.js').Draft}} p */
export function Commands({ project, publisher, draft }) {
  const boot = useLoad((get) => get('/configuration/dashboard'), []);
  if (!boot.data || !publisher) return html`<${Failed} of=${boot} />`;
  const to = { ...addresses(boot.data, location.hostname), project, token: publisher.token, type: draft.type || 'DEFAULT', payload: draft.text };
  if (draft.way === 'mqtt') return html`<p class="hint">${words.mqttText}</p><${Code} label=${words.ways.mqtt} text=${mosquitto(to)} plain />${!to.mqtt && html`<p class="hint">${words.noMqtt}</p>`}`;
  return html`<details class="command"><summary><${Icon} name="terminal" />${words.asCurl}</summary><${Code} label=${words.curlLabel} text=${curl(to)} plain /></details>
    <${AsCommand} text=${`fieldbrook send ${quoted(project)} --publisher ${quoted(publisher.key)} --type ${quoted(to.type)} --data ${quoted(draft.text)}`} />`;
}
