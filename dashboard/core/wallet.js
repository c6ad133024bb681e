// @ts-check
/**
 * Wallets of this browser, and signing in with one.
 *
 * Source: EIP-6963 (finding them), EIP-1193 (asking them), EIP-4361 (the message), EIP-191.
 */
import { signal } from '../vendor/preact.js';
import { get, put } from './api.js';
import { sessionOf } from './session.js';
import * as words from '../words/en/signin.js';

const VALID_MS = 180_000;

/** @typedef {{request: (question: {method: string, params?: unknown[]}) => Promise<any>}} Provider */
/** @typedef {{info: {uuid: string, name: string, icon: string, rdns: string}, provider: Provider}} Wallet */

/** @type {Signal<Wallet[]>} */
export const wallets = signal([]);

// Extensions may announce themselves late, so the page never stops listening.
addEventListener('eip6963:announceProvider', (event) => {
  const wallet = /** @type {CustomEvent<Wallet>} */ (event).detail;
  if (!wallet?.info?.uuid || wallets.value.some(({ info }) => info.uuid === wallet.info.uuid)) return;
  wallets.value = [...wallets.value, wallet].slice(0, 12);
});
export const discover = () => dispatchEvent(new Event('eip6963:requestProvider'));

/** An icon that is safe to show: an image inside its own address. @param {string} icon */
export const safeIcon = (icon) => (/^data:image\/(?:svg\+xml|png|webp)[;,]/.test(icon) ? icon : '');

/**
 * The text that a wallet shows and signs.
 * @param {{domain: string, uri: string, address: string, chain: number, nonce: string, issued: string, expires: string}} m
 */
const message = (m) => `${words.wantsYou(m.domain, m.address)}\n\n${words.statement}\n\nURI: ${m.uri}\nVersion: 1\nChain ID: ${m.chain}\nNonce: ${m.nonce}\nIssued At: ${m.issued}\nExpiration Time: ${m.expires}`;

const hex = (/** @type {string} */ text) => `0x${[...new TextEncoder().encode(text)].map((b) => b.toString(16).padStart(2, '0')).join('')}`;

/** Sign in with a wallet. @param {Provider} provider @returns {Promise<import('./session.js').Session>} */
export async function signInWith(provider) {
  const [account] = await provider.request({ method: 'eth_requestAccounts' });
  if (!account) throw new Error(words.noAccount);
  const chain = Number(await provider.request({ method: 'eth_chainId' }));
  const { address = account, nonce } = await get('/login/wallet/nonce', { address: account }, { once: true });
  const now = Date.now();
  const text = message({
    domain: location.host, uri: location.origin, address, chain, nonce,
    issued: new Date(now).toISOString(), expires: new Date(now + VALID_MS).toISOString(),
  });
  const signature = await provider.request({ method: 'personal_sign', params: [hex(text), address] });
  const login = await put('/login/wallet', { message: text, signature }, { once: true });
  return sessionOf(login, `${address.slice(0, 6)}…${address.slice(-4)}`);
}
