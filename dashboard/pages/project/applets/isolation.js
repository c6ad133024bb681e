// @ts-check
/** How long an instance of an applet lives: one event, one batch, or a number of events. */
import { html, useState } from '../../../vendor/preact.js';
import { Field } from '../../../parts/form.js';
import { typed } from '../../../parts/basics.js';
import * as words from '../../../words/en/applets.js';

const REUSE = 1000;

/** @typedef {keyof typeof words.isolations} Kind */

/** @param {{applet?: any}} p */
export function Isolation({ applet }) {
  const [kind, set] = useState(/** @type {Kind} */ (applet?.isolation ?? 'EVENT'));
  return html`<${Field} label=${words.isolation} hint=${words.isolationHints[kind]}><select name="isolation" onChange=${typed(set)}>${Object.entries(words.isolations).map(([name, title]) => html`<option value=${name} selected=${name === kind}>${title}</option>`)}</select><//>
    ${kind === 'INSTANCE' && html`<${Field} label=${words.reuse}><input name="reuse" type="number" min="1" max="1000000" required defaultValue=${applet?.reuseEvents ?? REUSE} /><//>`}`;
}

/** The fields of a request from those of a form. @param {Values} form */
export const isolationOf = ({ isolation, reuse }) => ({ isolation, ...(reuse ? { reuseEvents: Number(reuse) } : {}) });
