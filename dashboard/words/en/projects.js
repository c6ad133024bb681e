// @ts-check
/** Words of the list of projects and of the frame around a project's pages. */

export const title = 'Projects';
export const text = 'A project owns applets, publishers and the data that its handlers keep.';
export const create = 'New project';
export const imported = 'Import';
export const columns = { name: 'Name', owner: 'Owner', events: 'Events/s', failed: 'Failed/s', letters: 'Dead letters', applets: 'Applets', id: 'Id', created: 'Created' };
export const none = 'No projects yet';
export const noneHint = 'Create one, or import one that another node exported.';
export const name = 'Name';
export const nameHint = '1 to 32 letters, digits and _. Devices send their events to this name.';
export const nameKept = 'Empty: the name that it had.';
export const newTokens = 'Give its publishers new tokens';
export const settings = 'Settings';
export const settingsOf = (/** @type {string} */ which) => `Settings of ${which}`;
export const settingsHint = 'Settings, export, delete';
export const description = 'Description';
export const createdToast = (/** @type {string} */ which) => `Project ${which} created`;
export const file = 'File of a project (.fieldbrook)';
export const importHint = 'Made with “Export” on the settings page of a project, or with fieldbrook project export.';
export const importedToast = 'Project imported';
export const find = 'Filter by name';
export const eventsPerSecond = (/** @type {string} */ rate) => `${rate} events/s`;
export const noEvents = 'no events right now';
export const send = 'Send a test event';
export const pages = 'Pages of the project';
