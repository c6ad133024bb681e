// @ts-check
/** What is loaded when it is shown first: components and style sheets. */
import { html, useEffect, useState } from '../vendor/preact.js';
import { Problem } from './basics.js';

/** @type {Map<string, Promise<unknown>>} */
const sheets = new Map();

/** Load a style sheet that only some pages need, once. @param {string} name */
export function style(name) {
  const known = sheets.get(name);
  if (known) return known;
  const link = document.createElement('link');
  link.rel = 'stylesheet';
  link.href = new URL(`../styles/${name}.css`, import.meta.url).pathname;
  const loaded = new Promise((resolve, reject) => Object.assign(link, { onload: resolve, onerror: () => reject(new Error(link.href)) }));
  sheets.set(name, loaded);
  document.head.append(link);
  return loaded;
}

/**
 * @param {{load: () => Promise<any>, part: string, [name: string]: any}} p
 *   load: imports the module; part: the export that gets the other properties
 */
export function Lazily({ load, part, ...properties }) {
  const [loaded, set] = useState(/** @type {{Part?: any, error?: Error}} */ ({}));
  useEffect(() => {
    let here = true;
    load().then((module) => here && set({ Part: module[part] }), (error) => here && set({ error }));
    return () => {
      here = false;
    };
  }, [part]);
  if (loaded.error) return html`<${Problem} error=${loaded.error} again=${() => location.reload()} />`;
  return loaded.Part ? html`<${loaded.Part} ...${properties} />` : null;
}
