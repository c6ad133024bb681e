// @ts-check
/** The wallets of this browser, each as a button that signs in. */
import { html, useEffect } from '../../vendor/preact.js';
import { discover, safeIcon, signInWith, wallets } from '../../core/wallet.js';
import { Icon } from '../../parts/basics.js';
import * as words from '../../words/en/signin.js';

const REPEAT_MS = 1500;

/** @param {{busy: string, run: (what: string, work: () => Promise<any>) => void}} p */
export function Wallets({ busy, run }) {
  useEffect(() => {
    discover();
    const timer = setInterval(discover, REPEAT_MS);
    return () => clearInterval(timer);
  }, []);
  return html`<div class="or"><span>${words.orWallet}</span></div><div class="wallets">
    ${wallets.value.map(({ info, provider }) => html`<button type="button" key=${info.uuid} disabled=${busy !== ''} onClick=${() => run(info.uuid, () => signInWith(provider))}>
      ${safeIcon(info.icon) ? html`<img src=${safeIcon(info.icon)} alt="" width="20" height="20" />` : html`<${Icon} name="wallet" />`}${busy === info.uuid ? words.inWallet : info.name}</button>`)}
    ${!wallets.value.length && html`<p class="hint">${isSecureContext ? words.noWallet : words.walletsNeedHttps}</p>`}</div>`;
}
