// @ts-check
/** What a project is: its ids, its description, whether it takes events without a token, and where it runs. */
import { html, useState } from '../../../vendor/preact.js';
import { post, put, remove, segment } from '../../../core/api.js';
import { Ago, Badge, Card, Copy, say } from '../../../parts/basics.js';
import { Confirm } from '../../../parts/dialog.js';
import { Field, Form } from '../../../parts/form.js';
import * as words from '../../../words/en/project_settings.js';
import { save } from '../../../words/en/common.js';

/** @param {Project} p */
function Access({ name, project, again }) {
  const [asking, ask] = useState(false);
  const path = /** @type {const} */ (`/publisher/x/${segment(name)}`);
  const work = async () => {
    if (project.public) await remove(path, { key: words.anonymousKey });
    else await post(`${path}/anonymous`);
    say(project.public ? words.nowPrivate : words.nowPublic);
    again();
  };
  const submit = project.public ? words.makePrivate : words.makePublic;
  return html`<div class="line"><span>${words.access}</span><${Badge} kind=${project.public ? 'warn' : 'good'}>${project.public ? words.isPublic : words.isPrivate}<//><button type="button" class="small" onClick=${() => ask(true)}>${submit}</button></div>
    ${asking && html`<${Confirm} title=${submit} text=${project.public ? words.makePrivateText : words.makePublicText} submit=${submit} work=${work} onClose=${() => ask(false)} />`}`;
}

/** @param {Project} p */
function Worker({ name, project, again }) {
  const [asking, ask] = useState(false);
  const dedicated = !project.dedicated;
  const work = async () => {
    await put(`/project/x/${segment(name)}/worker`, { dedicated });
    say(dedicated ? words.nowDedicated : words.nowShared);
    again();
  };
  const submit = dedicated ? words.makeDedicated : words.makeShared;
  return html`<div class="line"><span>${words.worker}</span><${Badge}>${dedicated ? words.isShared : words.isDedicated}<//><button type="button" class="small" onClick=${() => ask(true)}>${submit}</button></div>
    ${asking && html`<${Confirm} title=${submit} text=${dedicated ? words.makeDedicatedText : words.makeSharedText} submit=${submit} work=${work} onClose=${() => ask(false)} />`}`;
}

/** @param {Project} p */
export function General({ name, project, again }) {
  const work = async (/** @type {Values} */ form) => {
    await put(`/project/x/${segment(name)}`, { description: form.description });
    say(words.saved);
    again();
  };
  return html`<${Card} title=${words.general}><div class="pad stack"><dl class="pairs"><dt>${words.id}</dt><dd class="mono">${project.projectID} <${Copy} text=${project.projectID} /></dd><dt>${words.owner}</dt><dd class="mono">${project.accountID}</dd><dt>${words.created}</dt><dd><${Ago} at=${project.createdAt} /></dd></dl>
    <${Form} submit=${save} work=${work}><${Field} label=${words.description}><input name="description" maxlength="256" autocomplete="off" defaultValue=${project.description ?? ''} /><//><//>
    <${Access} name=${name} project=${project} again=${again} /><${Worker} name=${name} project=${project} again=${again} /></div><//>`;
}
