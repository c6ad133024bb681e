// @ts-check
/** A panel with all that a device needs to send events as a publisher. */
import { html, useEffect, useState } from '../../../vendor/preact.js';
import { useLoad } from '../../../core/load.js';
import { Copy, Do, Show, typed } from '../../../parts/basics.js';
import { AsCommand, Code } from '../../../parts/code.js';
import { Dialog } from '../../../parts/dialog.js';
import { Field } from '../../../parts/form.js';
import { quoted } from '../../../core/format.js';
import { addresses, c, curl, eventAddress, mosquitto, provisioning, python, topic } from './snippets.js';
import * as words from '../../../words/en/publishers.js';

const SAMPLE = '{"temperature": 21.5}';
const QUIET = 4; // modules around a QR code, as ISO/IEC 18004 asks for
const WAYS = { http: curl, mqtt: mosquitto, python, c };

/** The path of all dark modules. @param {{size: number, get: (x: number, y: number) => boolean}} code */
function dark(code) {
  let path = '';
  for (let y = 0; y < code.size; y++) for (let x = 0; x < code.size; x++) if (code.get(x, y)) path += `M${x} ${y}h1v1h-1z`;
  return path;
}

/** The library is loaded when somebody wants to see the code. @param {{text: string}} p */
function QrCode({ text }) {
  const made = useLoad(async () => (await import('../../../vendor/qr.js')).generate(text), [text]);
  return html`<${Show} of=${made} rows=${2}>${(/** @type {any} */ code) => {
    const box = [-QUIET, -QUIET, code.size + 2 * QUIET, code.size + 2 * QUIET];
    return html`<svg class="qr" viewBox=${box.join(' ')} role="img" aria-label=${words.codeLabel} shape-rendering="crispEdges"><rect x=${box[0]} y=${box[1]} width=${box[2]} height=${box[3]} fill="#fff" /><path d=${dark(code)} fill="#000" /></svg>`;
  }}<//>`;
}

/** @param {{to: import('./snippets.js').Target, publisher: Api.PublisherReply}} p */
function Ways({ to, publisher }) {
  const [way, choose] = useState(/** @type {keyof typeof WAYS} */ ('http'));
  const [shown, show] = useState(false);
  const noBroker = way === 'mqtt' && !to.mqtt;
  return html`<div class="segments" role="group" aria-label=${words.howTo}>${Object.entries(words.ways).map(([name, title]) => html`<button type="button" aria-pressed=${name === way} onClick=${() => choose(/** @type {any} */ (name))}>${title}</button>`)}</div>
    <${Code} label=${words.snippet(words.ways[way])} text=${WAYS[way](to)} plain />
    <p class="hint">${noBroker ? words.noMqtt : words.whatToDo[way]}</p>
    <dl class="pairs"><dt>${way === 'mqtt' ? words.topic : words.address}</dt><dd class="mono">${way === 'mqtt' ? topic(to) : eventAddress(to)}</dd>
      <dt>${words.token}</dt><dd><${Copy} text=${publisher.token} label=${words.copyToken} /></dd></dl>
    <${AsCommand} text=${`fieldbrook send ${quoted(to.project)} --publisher ${quoted(publisher.key)} --type ${quoted(to.type)} --data ${quoted(to.payload)}`} />
    <h3>${words.code}</h3><p class="hint">${words.codeText}</p>
    ${shown ? html`<${QrCode} text=${provisioning(to, publisher.key)} />` : html`<div><${Do} icon="qr" onClick=${() => show(true)}>${words.showCode}<//></div>`}`;
}

/** @param {{project: string, publisherID: string, types: string[], onClose: () => void}} p */
export function Connect({ project, publisherID, types, onClose }) {
  const loaded = useLoad(async (get) => {
    const [publisher, boot] = await Promise.all([get(`/publisher/data/${publisherID}`), get('/configuration/dashboard')]);
    return { publisher, boot };
  }, [publisherID]);
  const allowed = loaded.data?.publisher.eventTypes ?? types;
  const [type, of] = useState('');
  useEffect(() => of(allowed[0] ?? 'DEFAULT'), [loaded.data?.publisher.publisherID]);
  return html`<${Dialog} side title=${words.connectTitle(loaded.data?.publisher.key ?? '')} onClose=${onClose}>
    <${Show} of=${loaded}>${(/** @type {any} */ { publisher, boot }) => html`<p class="hint">${words.connectText}</p>
      <${Field} label=${words.eventType}><input list="connect-types" value=${type} spellcheck=${false} onInput=${typed(of)} /><datalist id="connect-types">${allowed.map((/** @type {string} */ one) => html`<option value=${one} />`)}</datalist><//>
      <${Ways} publisher=${publisher} to=${{ ...addresses(boot, location.hostname), project, token: publisher.token, type: type || 'DEFAULT', payload: SAMPLE }} />`}<//><//>`;
}
