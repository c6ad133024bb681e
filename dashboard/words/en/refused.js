// @ts-check
/** Words of refused events. */
import { count } from '../../core/format.js';

export const title = 'Refused events';
export const text = 'Events that no project took, with the reason: unknown project, wrong token, too many at once';
export const columns = { time: 'Time', project: 'Project', publisher: 'Publisher', type: 'Event type', error: 'Reason', source: 'By', id: 'Event id', size: 'Size' };
export const project = 'Project';
export const id = 'Event id';
export const none = 'No refused events';
export const noneHint = 'An event with a wrong token, for an unknown project or beyond a limit is listed here with its reason.';
/** @param {number} n */
export const more = (n) => `${count(n)} more were only counted: a flood of refusals keeps one of each kind.`;
export const all = 'All reasons';
export const reason = 'Reason';
export const whatIt = 'What the error means';
