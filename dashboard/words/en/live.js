// @ts-check
/** Words of live lists. */

export const perSecond = '/s';
export const seen = 'since this page opened';
export const notListed = 'not listed';
export const thinned = 'The node lists at most 160 events a second, failures first, and counts all of them.';
export const failed = 'failed';
export const pause = 'Pause';
export const goOn = 'Go on';
/** @param {string} n */
export const newer = (n) => `${n} newer`;
/** @param {string} came @param {string} failed */
export const announce = (came, failed) => `${came} more, ${failed} failed`;
export const older = 'Load older';
export const keptSince = 'Kept since';
