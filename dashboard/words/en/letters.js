// @ts-check
/** Words of the page of dead letters. */

/** @param {string} n */
export const kept = (n) => `${n} kept`;
export const hint = 'Mend the cause, then replay. A letter that fails again stays.';
export const none = 'No dead letters';
export const noneHint = 'An event whose handler fails is kept here with its payload and the reason, until it is replayed or discarded.';
export const failedIn = 'Failed in version';
export const letter = 'Dead letter';
export const columns = { failed: 'Failed', event: 'Event', type: 'Type', version: 'Version', attempts: 'Attempts', size: 'Size' };
export const select = 'Select';
/** @param {string} id */
export const selectOne = (id) => `Select ${id}`;
/** @param {number} n */
export const selected = (n) => `${n} selected`;
export const replay = 'Replay';
export const discard = 'Discard';
export const replayAll = 'Replay all';
export const discardAll = 'Discard all';
/** @param {string} n */
export const discardText = (n) => `Discard ${n} dead letters with their payloads? This cannot be undone.`;
/** @param {string} reason */
export const ofGroup = (reason) => `Dead letters: ${reason}`;
/** @param {number | string} v */
export const version = (v) => `version ${v}`;
/** @param {number} failed @param {number} all */
export const failedAgain = (failed, all) => `${failed} of ${all} failed again and stay`;
/** @param {number} n */
export const replayed = (n) => `${n} replayed`;
/** @param {number} n */
export const discarded = (n) => `${n} discarded`;
export const more = 'Show more';
export const handler = 'Handler';
export const received = 'Received';
export const attempts = 'Attempts';
export const payload = 'Payload';
export const noPayload = 'It has no payload.';
