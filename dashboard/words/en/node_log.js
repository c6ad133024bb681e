// @ts-check
/** Words of the node's own log. */
import { count } from '../../core/format.js';

export const title = 'Node log';
export const text = 'What the processes of the node wrote, the newest first';
export const level = 'Level';
/** @type {Record<string, string>} */
export const levels = { '': 'All levels', INFO: 'Info and above', WARNING: 'Warnings and errors', ERROR: 'Errors' };
export const contains = 'Part of the text';
export const ofProcess = 'Process, such as http:0';
export const columns = { time: 'Time', level: 'Level', process: 'Process', text: 'Message' };
export const follow = 'Follow';
export const pause = 'Pause';
export const none = 'No lines';
export const noneHint = 'The node keeps its last lines in memory; none of them matches.';
/** @param {number} n @param {number} shown */
export const lines = (n, shown) => (n > shown ? `the newest ${count(shown)} of ${count(n)} lines` : `${count(n)} lines`);
