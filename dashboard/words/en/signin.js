// @ts-check
/** Words of signing in and of the first start. */

export const signIn = 'Sign in';
export const setUp = 'Set up this node';
export const again = 'Your login has ended';
export const againText = 'Sign in again to go on. Nothing that you typed is lost.';
export const otherAccount = 'Sign in with another account';
export const username = 'Username';
export const password = 'Password';
export const setupCode = 'Setup code';
export const createAdministrator = 'Create administrator';
export const passwordHint = 'At least 8 characters. There is no default password.';
/** @param {string} version @param {string} host */
export const where = (version, host) => `fieldbrook ${version} at ${host}`;
export const setupText = 'This node has no administrator yet. It wrote a setup code at its first start:';
export const orWallet = 'or with a wallet';
export const noWallet = 'No wallet extension was found in this browser.';
export const walletsNeedHttps = 'Wallets need https or localhost.';
export const inWallet = 'Continue in the wallet…';
export const declined = 'You declined in the wallet. Nothing was signed.';
export const noAccount = 'The wallet gave no account.';
export const statement = 'Sign in to the dashboard of this fieldbrook node.';
/** @param {string} domain @param {string} address */
export const wantsYou = (domain, address) => `${domain} wants you to sign in with your Ethereum account:\n${address}`;
