// @ts-check
/** Environment variables of a project's handlers. */
import { html, useState } from '../../../vendor/preact.js';
import { post, segment } from '../../../core/api.js';
import { Card, Do, Mark, say } from '../../../parts/basics.js';
import { Form, Text } from '../../../parts/form.js';
import * as words from '../../../words/en/project_settings.js';

/** The pairs in the fields of the form, in their order. @param {Values} form @returns {[string, string][]} */
const pairsOf = (form) => Object.keys(form).filter((name) => name.startsWith('name-')).map((name) => [form[name].trim(), form[name.replace('name-', 'value-')]]);

/** @param {Project} p */
export function Variables({ name, project, again }) {
  const [rows, set] = useState(() => project.envs.env.map(([key, value], id) => ({ id, key, value })));
  const add = () => set([...rows, { id: (rows.at(-1)?.id ?? -1) + 1, key: '', value: '' }]);
  const work = async (/** @type {Values} */ form) => {
    await post(`/project_config/x/${segment(name)}/PROJECT_ENV`, { env: pairsOf(form) });
    say(words.variablesSaved);
    again();
  };
  return html`<${Card} title=${words.variables}><div class="pad stack"><p class="hint">${words.variablesText}</p><${Form} submit=${words.saveVariables} work=${work}>
    ${!rows.length && html`<p class="dim">${words.noVariables}</p>`}
    ${rows.map((/** @type {any} */ { id, key, value }, /** @type {number} */ i) => html`<div class="rule" key=${id}><${Text} name=${`name-${id}`} required maxlength="256" class="mono" aria-label=${words.nameOf(i + 1)} placeholder=${words.variableName} defaultValue=${key} autocapitalize="none" /><span aria-hidden="true">=</span>
      <${Text} name=${`value-${id}`} class="mono" aria-label=${words.valueOf(i + 1)} placeholder=${words.variableValue} defaultValue=${value} autocapitalize="none" /><${Mark} icon="close" label=${words.removeVariable(i + 1)} onClick=${() => set(rows.filter((one) => one.id !== id))} /></div>`)}
    <div><${Do} icon="plus" class="small" onClick=${add}>${words.addVariable}<//></div><//></div><//>`;
}
