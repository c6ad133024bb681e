// @ts-check
/** Applets of a project: deploy modules, choose what they handle, start, stop and roll back. */
import { html, useState } from '../../vendor/preact.js';
import { attempt } from '../../core/load.js';
import { Do, Icon } from '../../parts/basics.js';
import { DropZone, FileButton } from '../../parts/file_button.js';
import { AppletCard } from './applets/card.js';
import { Deploy } from './applets/deploy.js';
import { ACCEPTED, counterExample } from './applets/modules.js';
import * as words from '../../words/en/applets.js';

const OPEN = 2; // with so few applets, their versions are shown at once

/** @param {Project} p */
export function Page({ name, applets, again }) {
  const [chosen, choose] = useState(/** @type {{file: File, into?: any} | null} */ (null));
  const example = () => attempt(async () => choose({ file: await counterExample() }));
  return html`<${DropZone} label=${words.drop} onFile=${(/** @type {File} */ file) => choose({ file })}><${Icon} name="upload" /><div><strong>${applets.length ? words.drop : words.none}</strong><p class="hint">${applets.length ? words.dropHint : `${words.noneHint} ${words.drop}.`}</p></div>
      <span class="line"><${FileButton} accept=${ACCEPTED} kind=${applets.length ? '' : 'primary'} onFile=${(/** @type {File} */ file) => choose({ file })}>${words.choose}<//>
      <${Do} icon="spark" onClick=${example}>${words.example}<//></span><//>
    ${applets.map((applet) => html`<${AppletCard} key=${applet.appletID} project=${name} applet=${applet} again=${again} open=${applets.length <= OPEN} deploy=${(/** @type {File} */ file) => choose({ file, into: applet })} />`)}
    ${chosen && html`<${Deploy} project=${name} file=${chosen.file} into=${chosen.into} applets=${applets} onClose=${() => choose(null)} onDone=${again} />`}`;
}
