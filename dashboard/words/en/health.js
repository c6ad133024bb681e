// @ts-check
/** Words of the node's health. */

export const title = 'Health';
export const text = 'What is wrong now, what was, and the processes of the node';
export const well = 'No problems';
export const wellHint = 'Every part of the node works. A problem appears here with what to do about it.';
export const now = 'Now';
export const lately = 'Ended lately';
/** @param {number} n */
export const problems = (n) => (n === 1 ? '1 problem' : `${n} problems`);
/** @param {number} n */
export const more = (n) => `${n} more are not listed.`;
export const processes = 'Processes';
/** @param {number} shown @param {number} total */
export const some = (shown, total) => (shown < total ? `${shown} of ${total}` : '');
export const columns = { part: 'Process', state: 'State', pid: 'Pid', memory: 'Memory', cpu: 'CPU', restarts: 'Restarts', started: 'Started', project: 'Project', worker: 'Worker', busy: 'Busy' };
export const running = 'Projects';
export const busyHint = 'Busy: the share of the time that a worker spends on the project';
export const resting = 'at rest';
/** @param {number} n */
export const runs = (n) => (n === 1 ? 'runs 1 project' : `runs ${n} projects`);
/** @param {number} share of a core */
export const percent = (share) => `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)} %`;
/** @type {Record<string, string>} what the parts of the node are for */
export const parts = { supervisor: 'starts and watches the others', registry: 'accounts, projects, applets', http: 'events and management', mqtt: 'events over MQTT', scheduler: 'cron jobs', chain: 'follows a chain', worker: 'runs projects' };
/** @type {Record<string, 'good' | 'bad' | 'warn' | ''>} */
export const kinds = { up: 'good', down: 'bad', backoff: 'bad', starting: 'warn', retiring: '', resting: '' };
/** @param {Record<string, number>} states */
export const projects = (states) => Object.entries(states).map(([state, n]) => `${n} ${state}`).join(', ');
export const projectsLabel = 'Projects';
