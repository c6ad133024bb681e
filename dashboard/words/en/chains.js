// @ts-check
/** Words of chains and operators. */
import { count } from '../../core/format.js';

export const title = 'Chains';
export const text = 'Chains that the node follows, and operators: the keys that sign transactions';
export const none = 'No chains';
export const noneHint = 'Name chains and their RPC endpoints in the settings file; monitors and transactions use them.';
export const readChains = 'How to use chains';
export const head = 'Newest block';
export const confirmations = 'Confirmations';
export const lag = 'Greatest lag';
export const transactions = 'Transactions';
export const monitors = 'Monitors';
export const reorganisations = 'Reorganisations';
/** @param {number} n @param {number} deepest */
export const reorganised = (n, deepest) => (n ? `${count(n)}, at most ${deepest} deep` : 'none');
/** @param {number} n */
export const blocks = (n) => `${count(n)} blocks`;
/** @type {Record<string, 'good' | 'bad' | 'warn'>} */
export const kinds = { OK: 'good', UNREACHABLE: 'bad', UNKNOWN: 'warn' };
/** @type {Record<string, string>} */
export const states = { OK: 'ok', UNREACHABLE: 'unreachable', UNKNOWN: 'not asked yet' };
/** @param {any} counts */
export const monitorCounts = (counts) => ['active', 'failing', 'paused', 'finished'].filter((name) => counts[name]).map((name) => `${counts[name]} ${name}`).join(', ') || 'none';
/** @param {any} counts */
export const transactionCounts = (counts) => (counts ? ['init', 'pending', 'in_block', 'confirmed', 'failed'].filter((name) => counts[name]).map((name) => `${count(counts[name])} ${name.replace('_', ' ')}`).join(', ') || 'none' : 'none');
/** @param {number} n */
export const stuck = (n) => `${n} stuck`;
export const parked = 'sending is paused';
export const park = 'Pause sending';
export const resume = 'Resume sending';
export const parkedToast = 'Sending is paused; committed transactions wait';
export const resumedToast = 'Sending is resumed';
export const parkText = 'Committed transactions wait until you resume. The node still watches those that it has sent.';
export const endpoints = 'Endpoints';
export const endpointColumns = { endpoint: 'Endpoint', head: 'Newest block', failures: 'Failures', state: 'State' };
export const behind = (/** @type {number} */ n) => `${count(n)} behind`;

export const operators = 'Operators';
export const operatorColumns = { name: 'Name', address: 'Address', type: 'Kind', created: 'Created' };
export const operatorTypes = ['', 'ECDSA', 'ED25519'];
export const isDefault = 'Used unless a project names another';
export const byDefault = 'unless named';
export const generate = 'Generate a key';
export const importKey = 'Import a key';
export const name = 'Name';
export const privateKey = 'Private key';
export const keyHint = 'Hexadecimal. The node keeps it encrypted.';
export const kind = 'Kind';
export const made = (/** @type {string} */ who) => `Operator ${who} created`;
export const exportKey = 'Export';
export const exportTitle = (/** @type {string} */ who) => `Export the private key of ${who}`;
export const exportText = 'Whoever has this key can spend everything of its address. The audit log records the export.';
export const yourPassword = 'Your password';
export const exported = 'Private key';
export const removeTitle = (/** @type {string} */ who) => `Delete operator ${who}`;
export const removeText = 'The key is deleted and cannot be recovered. Its projects can no longer send transactions.';
export const removed = (/** @type {string} */ who) => `Operator ${who} deleted`;
