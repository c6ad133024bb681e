// @ts-check
/** What sends events from inside the node: times and chains. */
import { html } from '../../vendor/preact.js';
import { useLoad } from '../../core/load.js';
import { Show } from '../../parts/basics.js';
import { Abis } from './triggers/abis.js';
import { CronJobs } from './triggers/cron.js';
import { Monitors } from './triggers/monitors.js';

/** @param {Project} p */
export function Page({ name, id }) {
  const boot = useLoad((get) => get('/configuration/dashboard'), []);
  return html`<${CronJobs} project=${name} id=${id} /><${Show} of=${boot}>${(/** @type {any} */ { chains }) => html`<${Monitors} project=${name} chains=${chains} />`}<//><${Abis} project=${name} />`;
}
