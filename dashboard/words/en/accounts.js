// @ts-check
/** Words of accounts and quotas. */

export const title = 'Accounts';
export const text = 'Who may sign in, what each may do, and how much each may have';
export const create = 'New account';
export const columns = { name: 'Name', role: 'Role', state: 'State', projects: 'Projects', created: 'Created' };
export const find = 'Filter by name';
export const username = 'Username';
export const password = 'Password';
export const passwordHint = 'At least 8 characters. Empty: the node makes one and shows it once.';
export const role = 'Role';
/** @type {Record<string, string>} */
export const roles = { DEVELOPER: 'Developer', ADMIN: 'Administrator' };
/** @type {Record<string, string>} */
export const roleHints = { DEVELOPER: 'Own projects, within the quotas.', ADMIN: 'Everything on this node, other accounts included.' };
export const wallet = 'wallet';
export const you = 'you';
export const enabled = 'enabled';
export const disabled = 'disabled';
export const none = 'No accounts';
export const created = (/** @type {string} */ who) => `Account ${who} created`;
export const generated = 'Generated password';
export const shownOnce = 'This is the only time that the password is shown.';
export const done = 'Done';
export const quotas = 'Quotas';
export const quotaColumns = { name: 'What', used: 'Used', limit: 'Limit', share: 'Share' };
export const unlimited = 'unlimited';
export const fromAccount = 'this account';
export const change = 'Change';
export const changeLimitOf = (/** @type {string} */ what) => `Change the limit of ${what}`;
export const limit = 'Limit';
export const bytesHint = 'In bytes.';
export const limitKinds = { own: 'A limit of its own', unlimited: 'Unlimited', default: 'That of the settings' };
export const which = 'Which limit';
export const limitChanged = 'Limit changed';
export const disable = 'Disable';
export const enable = 'Enable';
export const disableTitle = (/** @type {string} */ who) => `Disable ${who}`;
export const disableText = 'Its logins end, its access keys are refused, and so are the events of its projects.';
export const disabledToast = (/** @type {string} */ who) => `${who} is disabled`;
export const enabledToast = (/** @type {string} */ who) => `${who} is enabled`;
export const setPassword = 'Set password';
export const setPasswordText = 'All logins of the account end. Access keys stay valid.';
export const passwordSet = 'Password set; all its logins have ended';
export const changeRole = 'Change role';
export const roleChanged = (/** @type {string} */ who, /** @type {string} */ to) => `${who} is now ${to.toLowerCase()}`;
export const endLogins = 'End logins';
export const endLoginsText = 'Every login of the account ends at once. Access keys stay valid.';
export const loginsEnded = 'All logins have ended';
export const removeTitle = (/** @type {string} */ who) => `Delete ${who}`;
export const removeText = (/** @type {number} */ projects) => (projects ? `Its access keys, its operators and its ${projects === 1 ? 'project' : `${projects} projects`} are deleted with all data. This cannot be undone.` : 'Its access keys and operators are deleted. This cannot be undone.');
export const removed = (/** @type {string} */ who) => `${who} deleted`;
export const whatTheyDid = 'What it changed';
export const id = 'Id';
