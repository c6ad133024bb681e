// @ts-check
/** Words of the page of log lines. */

export const label = 'Log lines, the newest first';
export const columns = ['Time', 'Level', 'Applet', 'Text'];
export const level = 'Level';
export const allLevels = 'All levels';
export const applet = 'Applet';
export const allApplets = 'All applets';
export const contains = 'Contains';
export const none = 'No log lines yet';
export const noneHint = 'Handlers write them with ws_log.';
export const noneFound = 'No line matches these filters';
/** @param {string} time */
export const toEvent = (time) => `The event of the line of ${time}`;
