// @ts-check
/** Words that several pages use. */

export const product = 'fieldbrook';
export const copy = 'Copy';
export const copied = 'Copied';
export const notCopied = 'Not allowed';
export const loading = 'Loading';
export const failed = 'The node refused this';
export const notAllowed = 'Not for this account';
export const notFound = 'There is no such thing';
export const notLoaded = 'This could not be loaded';
export const tryAgain = 'Try again';
export const unreachable = 'The node does not answer.';
export const closeLabel = 'Close';
export const busy = 'One moment…';
export const asCommand = 'As a command';
export const asTable = 'As a table';
export const latest = 'Latest';
export const least = 'Least';
export const most = 'Most';
export const actions = 'Actions';
export const more = 'Show more';
export const save = 'Save';
export const remove = 'Delete';
export const edit = 'Edit';
export const since = 'since';
export const until = 'until';
export const whatToDo = 'What to do';
/** @param {string} name */
export const typeName = (name) => `Type ${name} to confirm`;
/** @param {string} title @param {string} unit */
export const overTime = (title, unit) => `${title}${unit ? `, ${unit}` : ''}, over time`;
