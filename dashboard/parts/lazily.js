// @ts-check
/** A component whose module is loaded when it is shown first. */
import { html, useEffect, useState } from '../vendor/preact.js';
import { Problem } from './basics.js';

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
