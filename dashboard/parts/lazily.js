// @ts-check
/** Parts of the page that are loaded when they are needed first. */
import { html } from '../vendor/preact.js';
import { mayPass } from '../core/api.js';
import { useLoad } from '../core/load.js';
import { loadFiles } from '../core/node_state.js';
import { Problem } from './basics.js';

/** @type {Map<string, Promise<unknown>>} */
const sheets = new Map();

/** Load a style sheet that only some pages need, once. @param {string} name */
function style(name) {
  const known = sheets.get(name);
  if (known) return known;
  const link = document.createElement('link');
  link.rel = 'stylesheet';
  link.href = new URL(`../styles/${name}.css`, import.meta.url).pathname;
  const failed = () => {
    link.remove();
    sheets.delete(name);
  };
  const loaded = new Promise((resolve, reject) => Object.assign(link, { onload: resolve, onerror: () => reject(new Error(link.href)) }));
  sheets.set(name, loaded);
  loaded.catch(failed);
  document.head.append(link);
  return loaded;
}

/** A module when its style sheets are there, too. @param {Promise<any>} module @param {...string} names */
export const withStyles = (module, ...names) => Promise.all([module, ...names.map(style)]).then(([loaded]) => loaded);

/**
 * A module that is loaded when it is needed first; none while the one of another name is there. It
 * is loaded again when the node did not answer.
 * @param {(() => Promise<any>) | undefined} load @param {string} name @returns {{module?: any, error?: Error}}
 */
export function useModule(load, name) {
  const { data, error } = useLoad(async () => ({ name, module: load && (await loadFiles(load)) }), [name]);
  if (data?.name === name) return { module: data.module };
  return { error: error && !mayPass(error) ? error : undefined }; // a strip tells of the others
}

/**
 * @param {{load: () => Promise<any>, part: string, [name: string]: any}} p
 *   load: imports the module; part: the export that gets the other properties
 */
export function Lazily({ load, part, ...properties }) {
  const { module, error } = useModule(load, part);
  if (error) return html`<${Problem} error=${error} again=${() => location.reload()} />`;
  return module ? html`<${module[part]} ...${properties} />` : null;
}
