// @ts-check
/** Words of traffic limits. */

export const title = 'Traffic limits';
export const none = 'No limit: the project takes as many events as the node can handle.';
export const columns = { kind: 'Limits', threshold: 'At most', each: 'Each publisher', since: 'Window since' };
export const kinds = { EVENT: 'Events of publishers', BLOCKCHAIN: 'Calls to chains' };
/** @param {string} n @param {string} duration */
export const per = (n, duration) => `${n} per ${duration}`;
export const noShare = 'no limit of its own';
export const add = 'Add limit';
export const editTitle = 'Change the limit';
export const kind = 'Kind of call';
export const threshold = 'Calls per window';
export const duration = 'Length of the window';
export const durationHint = 'Such as 1s, 10m, 24h.';
export const share = 'Calls per window of one publisher';
export const shareHint = 'Empty or 0: no limit of its own.';
export const saved = 'Limit saved';
export const removed = 'Limit deleted';
export const deleteTitle = 'Delete this limit?';
export const deleteText = 'The project takes as many calls of this kind as the node can handle.';
export const byAdministrators = 'Administrators of the node set these limits.';
export const over = 'Calls above a limit are answered 429 until the next window.';
