// @ts-check
/** Words of the audit log. */

export const title = 'Audit log';
export const text = 'Who changed what, the latest first. Refused attempts are there, too.';
export const columns = { time: 'Time', account: 'Account', operation: 'Operation', path: 'Path', from: 'From', status: 'Answer' };
export const account = 'Account';
export const operation = 'Operation';
export const operationHint = 'As CreateProject';
export const path = 'Part of the path';
export const outcome = 'Outcome';
export const outcomes = { '': 'All', DONE: 'Done', REFUSED: 'Refused' };
export const begin = 'From';
export const end = 'Until';
export const clear = 'Clear filters';
export const none = 'No entries';
export const noneHint = 'Nothing was changed yet, or the filters match nothing.';
export const unknown = 'nobody';
/** @param {string} name */
export const byKey = (name) => `key ${name}`;
