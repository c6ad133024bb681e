// @ts-check
/** Words of a project's transactions. */
import { count } from '../../core/format.js';

export const label = 'Transactions, the newest first';
export const columns = { state: 'State', hash: 'Hash', nonce: 'Nonce', value: 'Value', to: 'To', fees: 'Fee', confirmations: 'Depth', event: 'Event', created: 'Created' };
/** @type {Record<string, string>} */
export const states = { INIT: 'waiting', PENDING: 'sent', IN_BLOCK: 'in a block', CONFIRMED: 'confirmed', FAILED: 'failed' };
/** @type {Record<string, '' | 'good' | 'bad' | 'warn' | 'info'>} */
export const kinds = { INIT: '', PENDING: 'info', IN_BLOCK: 'info', CONFIRMED: 'good', FAILED: 'bad' };
/** @type {Record<string, string>} */
export const hints = { INIT: 'Committed; not sent yet', PENDING: 'Sent; in no block yet', IN_BLOCK: 'In a block; not yet deep enough', CONFIRMED: 'Deep enough', FAILED: 'Reverted, or given up' };
export const stuck = 'stuck';
export const allStates = 'All states';
export const state = 'State';
export const chain = 'Chain';
export const allChains = 'All chains';
export const onlyStuck = 'Only stuck';
export const find = 'Hash, sender, event id or number';
export const none = 'No transactions';
export const noneHint = 'A handler sends one with ws_send_tx. It is signed while the handler runs and sent once, after the commit.';
export const noneFound = 'No transaction matches these filters';
export const howTo = 'How transactions are sent';
export const clear = 'Clear filters';
export const spending = 'Spending';
export const spentToday = 'Spent today';
export const spentEver = 'Fees so far';
export const noLimit = 'no limit per day';
/** @param {string} limit */
export const ofLimit = (limit) => `of ${limit} per day`;
export const setLimit = 'Set a limit';
export const limitPerDay = 'Limit per day (UTC), in wei, fees included';
/** @param {string} amount */
export const limitHint = (amount) => `${amount}. A transaction that would exceed it is refused to the handler.`;
export const limitSet = 'Limit set';
/** @param {any} counts */
export const counted = (counts) => ['init', 'pending', 'in_block', 'confirmed', 'failed'].filter((name) => counts[name]).map((name) => `${count(counts[name])} ${states[name.toUpperCase()]}`).join(', ') || 'none yet';
export const title = (/** @type {string} */ id) => `Transaction ${id}`;
export const facts = { from: 'From', to: 'To', value: 'Value', nonce: 'Nonce', operator: 'Operator', event: 'Sent by event', outcome: 'Outcome becomes an event', block: 'Block', fee: 'Fee', gas: 'Gas', confirmations: 'Confirmations', created: 'Committed', sent: 'Sent', hash: 'Hash' };
/** @param {string | number | undefined} used @param {string | number} limit */
export const gasOf = (used, limit) => (used ? `${count(Number(used))} of ${count(Number(limit))}` : `at most ${count(Number(limit))}`);
/** @param {number} have @param {number} need */
export const confirmationsOf = (have, need) => `${count(have)} of ${count(need)}`;
export const attempts = 'Signatures';
export const attemptColumns = { hash: 'Hash', max: 'Fee cap per gas', tip: 'Tip per gas', signed: 'Signed', why: 'Why' };
export const cancels = 'cancels it';
export const data = 'Call data';
export const reason = 'Reason';
export const retry = 'Send again';
export const retryText = 'It is signed again with the same nonce and higher fees, within the cap of the chain. Only one of the two can get into a block.';
export const retried = 'Signed again with higher fees';
export const cancel = 'Cancel';
export const cancelText = 'Its nonce is used for a transaction that does nothing. If it gets into a block first, it stays as it is.';
export const cancelledToast = 'A cancelling transaction is signed';
export const adminsOnly = 'An administrator can send it again or cancel it.';
export const create = 'creates a contract';
export const seeNewer = 'Back to the newest';
