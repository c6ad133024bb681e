// @ts-check
/** Export a project to a file, and delete it. */
import { html, useState } from '../../../vendor/preact.js';
import { post, remove, segment } from '../../../core/api.js';
import { download } from '../../../core/download.js';
import { quoted } from '../../../core/format.js';
import { go } from '../../../core/route.js';
import { Card, Do, say } from '../../../parts/basics.js';
import { AsCommand } from '../../../parts/code.js';
import { Confirm } from '../../../parts/dialog.js';
import { Form } from '../../../parts/form.js';
import * as words from '../../../words/en/project_settings.js';

/** @param {{name: string}} p */
export function Export({ name }) {
  const work = async (/** @type {Values} */ form) => {
    const options = { data: form.data === 'on', tokens: form.tokens === 'on' };
    download(await post(`/project/x/${segment(name)}/export`, options, { blob: true }), `${name}.fieldbrook`);
    say(words.exported);
  };
  return html`<${Card} title=${words.exportTitle}><div class="pad stack"><p class="hint">${words.exportText}</p><${Form} submit=${words.exportNow} work=${work}>
    <label class="check"><input type="checkbox" name="data" defaultChecked />${words.withData}</label><label class="check"><input type="checkbox" name="tokens" />${words.withTokens}</label><//><${AsCommand} text=${`fieldbrook project export ${quoted(name)} ${quoted(`${name}.fieldbrook`)}`} /></div><//>`;
}

/** @param {{name: string, changed: () => void}} p */
export function Danger({ name, changed }) {
  const [asking, ask] = useState(false);
  const work = async () => {
    await remove(`/project/x/${segment(name)}`);
    say(words.deleted(name));
    changed();
    go('/projects');
  };
  return html`<${Card} title=${words.danger}><div class="pad stack"><p class="hint">${words.dangerText}</p><div><${Do} icon="trash" class="danger" onClick=${() => ask(true)}>${words.deleteProject}<//></div><${AsCommand} text=${`fieldbrook project delete ${quoted(name)}`} /></div>
    ${asking && html`<${Confirm} title=${words.deleteTitle(name)} text=${words.dangerText} submit=${words.deleteProject} name=${name} work=${work} onClose=${() => ask(false)} />`}<//>`;
}
