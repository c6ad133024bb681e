// @ts-check
/** Words of the node's settings. */

export const title = 'Settings';
export const text = 'What this node runs with, and where each value came from. Settings are read when the node starts.';
export const columns = { name: 'Setting', value: 'Value', standard: 'Default', from: 'From' };
export const find = 'Filter by name, value or text';
export const changedOnly = 'Only changed';
/** @type {Record<string, string>} */
export const sources = { default: 'default', file: 'settings file', environment: 'environment', option: 'option' };
export const none = 'No setting matches';
export const empty = 'empty';
export const aboutIt = (/** @type {string} */ name) => `What ${name} does`;
export const howTo = 'How settings are changed';
