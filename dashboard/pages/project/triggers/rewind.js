// @ts-check
/** Begin a monitor of contract logs again at another block. */
import { html } from '../../../vendor/preact.js';
import { post } from '../../../core/api.js';
import { quoted } from '../../../core/format.js';
import { AsCommand } from '../../../parts/code.js';
import { Dialog } from '../../../parts/dialog.js';
import { Field, Form } from '../../../parts/form.js';
import { say } from '../../../parts/basics.js';
import { pathOf, whatOf } from './monitors.js';
import * as words from '../../../words/en/triggers.js';

/** @param {{project: string, monitor: import('./monitors.js').Monitor, onClose: () => void, onDone: () => void}} p */
export function Rewind({ project, monitor, onClose, onDone }) {
  const work = async (/** @type {Values} */ form) => {
    const block = Number(form.block);
    await post(`${pathOf(project, 'contract_log')}/${monitor.id}/rewind`, { blockStart: block });
    say(words.rewound(block));
    onDone();
    onClose();
  };
  return html`<${Dialog} title=${words.rewindOf(whatOf(monitor))} onClose=${onClose}><${Form} submit=${words.rewind} work=${work}><p>${words.rewindText}</p>
    <${Field} label=${words.rewindTo}><input name="block" type="number" min="1" required autofocus defaultValue=${monitor.blockStart} /><//><//>
    <${AsCommand} text=${`fieldbrook monitor rewind ${quoted(project)} ${monitor.id} BLOCK`} /><//>`;
}
