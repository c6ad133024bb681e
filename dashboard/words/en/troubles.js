// @ts-check
/** Words of health conditions. */

export const since = 'since';
export const until = 'until';
export const whatToDo = 'What to do';
