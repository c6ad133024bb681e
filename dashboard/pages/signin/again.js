// @ts-check
/** Sign in again, over a page whose login has ended. */
import { html } from '../../vendor/preact.js';
import { keep, session } from '../../core/session.js';
import { Dialog } from '../../parts/dialog.js';
import { PasswordForm, useSignIn } from '../signin.js';
import { Wallets } from './wallets.js';
import * as words from '../../words/en/signin.js';

/** Asks for the password over a page whose login has ended. @param {{boot: any}} p */
export function SignInAgain({ boot }) {
  const { error, busy, run } = useSignIn();
  const name = session.value?.name ?? '';
  const byWallet = name.startsWith('0x');
  return html`<${Dialog} title=${words.again} onClose=${() => undefined} must><p>${words.againText}</p>
    ${!byWallet && html`<${PasswordForm} setup=${false} busy=${busy} run=${run} name=${name} />`}
    <div class="error" role="alert">${error}</div>${byWallet && boot.walletSignIn && html`<${Wallets} busy=${busy} run=${run} />`}
    <button type="button" class="ghost" onClick=${() => keep(null)}>${words.otherAccount}</button><//>`;
}
