// @ts-check
/** One applet: its state, its strategies and its versions. */
import { html, useState } from '../../../vendor/preact.js';
import { post, put, remove } from '../../../core/api.js';
import { attempt } from '../../../core/load.js';
import { quoted, size } from '../../../core/format.js';
import { Badge, Do, Icon, Mark, say } from '../../../parts/basics.js';
import { AsCommand } from '../../../parts/code.js';
import { Confirm, Dialog } from '../../../parts/dialog.js';
import { FileButton } from '../../../parts/file_button.js';
import { Field, Form, Text } from '../../../parts/form.js';
import { Isolation, isolationOf } from './isolation.js';
import { ACCEPTED, changeApplet } from './modules.js';
import { Strategies } from './strategies.js';
import { Versions } from './versions.js';
import * as words from '../../../words/en/applets.js';
import { edit, remove as removeWord, save } from '../../../words/en/common.js';

/** @param {{project: string, applet: Api.AppletReply, onClose: () => void, onDone: () => void}} p */
function EditApplet({ project, applet, onClose, onDone }) {
  const work = async (/** @type {Values} */ form) => {
    await changeApplet(applet.appletID, null, { appletName: form.name, wasmCache: { mode: applet.wasmCache.mode, prefix: form.prefix }, ...isolationOf(form) });
    say(words.saved(form.name));
    onDone();
    onClose();
  };
  return html`<${Dialog} title=${words.editOf(applet.name)} onClose=${onClose}><${Form} submit=${save} work=${work}>
    <${Field} label=${words.name}><${Text} name="name" required maxlength="64" defaultValue=${applet.name} /><//><${Isolation} applet=${applet} />
    <${Field} label=${words.prefix} hint=${words.prefixHint}><${Text} name="prefix" defaultValue=${applet.wasmCache.prefix ?? ''} /><//><//><//>`;
}

/** @param {{project: string, applet: Api.AppletReply, again: () => void, deploy: (file: File) => void}} p */
function Controls({ project, applet, again, deploy }) {
  const [dialog, show] = useState('');
  const runs = applet.instance?.state === 'STARTED';
  const close = () => show('');
  const toggle = () => attempt(async () => {
    if (applet.instance && runs) await put(`/deploy/${applet.instance.instanceID}/STOP`);
    else if (applet.instance) await put(`/deploy/${applet.instance.instanceID}/START`);
    else await post(`/deploy/applet/${applet.appletID}`);
    again();
  }, runs ? words.stopped(applet.name) : words.started(applet.name));
  const drop = async () => {
    await remove(`/applet/data/${applet.appletID}`);
    say(words.deleted(applet.name));
    again();
  };
  return html`<${Do} icon=${runs ? 'stop' : 'play'} aria-label=${runs ? words.stopOf(applet.name) : words.startOf(applet.name)} onClick=${toggle}>${runs ? words.stop : words.start}<//>
    <${FileButton} accept=${ACCEPTED} onFile=${deploy} label=${words.newVersionOf(applet.name)}><${Icon} name="upload" />${words.newVersion}<//>
    <${Mark} icon="edit" kind="square" label=${words.editOf(applet.name)} title=${edit} onClick=${() => show('edit')} />
    <${Mark} icon="trash" kind="square" label=${words.deleteOf(applet.name)} title=${removeWord} onClick=${() => show('delete')} />
    ${dialog === 'edit' && html`<${EditApplet} project=${project} applet=${applet} onClose=${close} onDone=${again} />`}
    ${dialog === 'delete' && html`<${Confirm} title=${words.deleteTitle(applet.name)} text=${words.deleteText} submit=${removeWord} work=${drop} onClose=${close} name=${applet.name} />`}`;
}

/** What this card can do, for a shell. @param {string} project @param {string} applet */
const commands = (project, applet) => ['show', 'stop', 'start', 'versions', 'rollback', 'delete'].map((verb) => `fieldbrook applet ${verb} ${quoted(project)} ${quoted(applet)}`).join('\n');

/** @param {{project: string, applet: Api.AppletReply, again: () => void, deploy: (file: File) => void, open: boolean}} p open: show its versions at once */
export function AppletCard({ project, applet, again, deploy, open }) {
  const [shown, show] = useState(open);
  const state = /** @type {keyof typeof words.states} */ (applet.instance?.state ?? 'REMOVED');
  return html`<section class="card" aria-label=${applet.name}><header class="bar"><h2>${applet.name}</h2><${Badge} kind=${state === 'STARTED' ? 'good' : 'warn'}>${words.states[state]}<//>
      <span class="dim">${[words.version(applet.version), size(applet.resource.size), words.isolations[/** @type {keyof typeof words.isolations} */ (applet.isolation)]].join(' · ')}</span><span class="grow"></span><${Controls} project=${project} applet=${applet} again=${again} deploy=${deploy} /></header>
    ${applet.warnings?.map((/** @type {string} */ text) => html`<p class="note warn">${text}</p>`)}
    <${Strategies} project=${project} applet=${applet} again=${again} />
    <details class="section" open=${shown} onToggle=${(/** @type {any} */ e) => show(e.target.open)}><summary>${words.versions}<${Badge}>${applet.version}<//></summary>${shown && html`<${Versions} project=${project} applet=${applet} again=${again} /><div class="bar thin"><${AsCommand} text=${commands(project, applet.name)} /></div>`}</details></section>`;
}
