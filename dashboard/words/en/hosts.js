// @ts-check
/** Words of the page of hosts. */

export const title = 'Hosts';
export const text = 'What runs this node, and which host owns what';
export const loss = 'One more loss';
/** @param {number} n */
export const spare = (n) => `${n} to spare`;
export const columns = { host: 'Host', state: 'State', version: 'Version', silent: 'Silent for', projects: 'Projects', streams: 'Streams led', load: 'Load', lag: 'Lag', clock: 'Clock' };
export const hint = 'Load is for each processor. Lag: records of streams and changes of the registry it lacks.';
/** @type {Record<string, string>} */
export const kinds = { up: 'good', silent: 'bad' };
export const me = 'this host';
export const registry = 'registry';
/** @param {number} n */
export const running = (n) => `${n} run`;
/** @param {number} n */
export const changes = (n) => (n ? `and ${n} changes` : '');
/** @param {number} s seconds */
export const ahead = (s) => (Math.abs(s) < 0.1 ? 'ok' : `${s.toFixed(1)} s ahead`);
export const owners = 'Projects and their owners';
/** @param {string} host */
export const pinned = (host) => `pinned to ${host}`;
export const project = 'Project';
export const all = 'All hosts';
/** @param {string} shown @param {string} total */
export const some = (shown, total) => `${shown} of ${total}`;
