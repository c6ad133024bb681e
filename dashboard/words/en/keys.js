// @ts-check
/** Words of access keys and of one's own account. */

export const title = 'Access keys';
export const text = 'Tokens for programs, with an expiry and the permissions that you give them';
export const create = 'New key';
export const columns = { name: 'Name', grants: 'Permissions', used: 'Last used', expires: 'Expires', created: 'Created' };
export const none = 'No access keys';
export const noneHint = 'A program that deploys applets or reads metrics signs in with a key instead of your password.';
export const name = 'Name';
export const description = 'What it is for';
export const days = 'Valid for';
/** @type {[number, string][]} */
export const lifetimes = [[1, '1 day'], [7, '7 days'], [30, '30 days'], [90, '90 days'], [365, '1 year'], [0, 'for ever']];
export const grants = 'Permissions';
export const grantsHint = 'Nothing is allowed that is not named here.';
/** @type {Record<string, string>} */
export const permissions = { NO_ACCESS: 'None', READONLY: 'Read', READ_WRITE: 'Read and write' };
export const shownOnce = 'This is the only time that the key is shown. The node stores only its hash.';
export const theKey = 'Access key';
export const useIt = 'Send it as a token';
export const copied = 'I have copied it';
export const never = 'never';
export const expired = 'expired';
/** @param {number} n */
export const moreGrants = (n) => `${n} more`;
export const allGrants = 'everything';
export const noGrants = 'nothing';
export const ofPublisher = 'of a publisher';
export const removeTitle = (/** @type {string} */ which) => `Delete key ${which}`;
export const removeText = 'Programs that use it are refused at once.';
export const removed = (/** @type {string} */ which) => `Key ${which} deleted`;

export const account = 'Your account';
export const wallet = 'Wallet';
export const walletHint = 'You sign in with this wallet.';
export const passwordOnly = 'You sign in with a password.';
export const username = 'Username';
export const role = 'Role';
export const since = 'Since';
export const changePassword = 'Change password';
export const oldPassword = 'Old password';
export const newPassword = 'New password';
export const repeatPassword = 'New password again';
export const passwordHint = 'At least 8 characters. All your other logins end.';
export const notSame = 'The two new passwords differ.';
export const passwordChanged = 'Password changed';
export const endLogins = 'Sign out everywhere';
export const endLoginsText = 'All your logins end, here and on other machines. Access keys stay valid.';
export const quotas = 'What you use';
