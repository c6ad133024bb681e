// @ts-check
/** Words of the host calls of a handler. */

export const label = 'Host calls, in order';
export const call = 'Call';
export const subject = 'Key or statement';
export const result = 'Result';
export const time = 'Time';
/** @param {number} us */
export const microseconds = (us) => (us < 1000 ? `${us} µs` : `${(us / 1000).toFixed(1)} ms`);
export const nothing = 'nothing';
/** @param {string} before @param {string} after */
export const changed = (before, after) => `${before} → ${after}`;
/** @param {string} text @param {string} whole the size of all of it */
export const cut = (text, whole) => `${text}… (${whole})`;
/** @param {number} count */
export const omitted = (count) => `${count} more calls were not kept.`;
