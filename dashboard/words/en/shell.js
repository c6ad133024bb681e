// @ts-check
/** Words of the frame around all pages. */

export const skip = 'Skip to the page';
export const menu = 'Menu';
export const search = 'Search';
export const searchKeys = 'Ctrl K';
export const navigation = 'Main';
export const overview = 'Overview';
export const projects = 'Projects';
export const allProjects = 'All projects';
export const node = 'Node';
export const nodePages = {
  health: 'Health', hosts: 'Hosts', chains: 'Chains', accounts: 'Accounts', keys: 'Access keys', audit: 'Audit log',
  refused: 'Refused events', settings: 'Settings', log: 'Node log',
};
export const documentation = 'Documentation';
export const light = 'Use the light theme';
export const dark = 'Use the dark theme';
export const signOut = 'Sign out';
export const offline = 'The node does not answer. What you see is from before. Trying again…';
export const slow = 'The node takes long to answer.';
export const upgraded = 'The node runs a new version.';
/** @param {string} reason */
export const noStream = (reason) => `Figures and lists stand still in this tab: ${reason}`;
export const reload = 'Reload this page';
export const noPage = 'This page does not exist';
export const toOverview = 'Go to the overview';
/** @param {number} value */
export const perSecond = (value) => `${value >= 10 ? Math.round(value) : value.toFixed(1)}/s`;
export const projectPages = {
  flow: 'Flow', events: 'Events', logs: 'Logs', letters: 'Dead letters', data: 'Data', applets: 'Applets',
  publishers: 'Publishers', triggers: 'Triggers', transactions: 'Transactions', console: 'Console', settings: 'Settings',
};

export const searchHint = 'Project, page, applet, publisher, event id, transaction…';
export const searchResults = 'Results';
export const nothingFound = 'Nothing found';
export const page = 'page';
export const kinds = { project: 'project', applet: 'applet', publisher: 'publisher', event: 'event', transaction: 'transaction', operator: 'operator', monitor: 'monitor' };
export const keysHint = '↑ ↓ to choose, Enter to open, Escape to close';
