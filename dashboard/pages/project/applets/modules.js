// @ts-check
/** Uploads of modules, and the example that comes with the node. */
import { call, segment } from '../../../core/api.js';
import { exampleName } from '../../../words/en/applets.js';

export const ACCEPTED = '.wasm,.wat';

/** @param {File | null} file @param {Values} info */
function formOf(file, info) {
  const form = new FormData();
  if (file) form.append('file', file, file.name);
  form.append('info', JSON.stringify(info));
  return form;
}

/** Imports, handlers and problems of a module; nothing is stored. @param {File} file @param {AbortSignal} signal */
export function inspect(file, signal) {
  const form = new FormData();
  form.append('file', file, file.name);
  return call('POST', '/resource/inspect', { form, signal });
}

/** @param {string} project @param {File} file @param {Values} info */
export const createApplet = (project, file, info) => call('POST', `/applet/x/${segment(project)}`, { form: formOf(file, { ...info, wasmName: file.name }) });

/** Change an applet; with a file it gets a new version. @param {string} appletID @param {File | null} file @param {Values} info */
export const changeApplet = (appletID, file, info) => call('PUT', `/applet/${appletID}`, { form: formOf(file, file ? { ...info, wasmName: file.name } : info) });

/** The counter example, as text: the node compiles it. */
export async function counterExample() {
  const answer = await fetch(new URL('../../../examples/counter.wat', import.meta.url), { credentials: 'omit' });
  if (!answer.ok) throw new Error(`${answer.status} ${answer.url}`);
  return new File([await answer.blob()], exampleName, { type: 'text/plain' });
}

/** A name for an applet from that of its file. @param {string} file */
export const stem = (file) => file.replace(/\.(?:wasm|wat)$/i, '');
