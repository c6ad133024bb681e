// @ts-check
/** Sign in, or set up the node. What a first page seldom needs is in modules of its own. */
import { html, useState } from '../vendor/preact.js';
import { call, put } from '../core/api.js';
import { keep, sessionOf } from '../core/session.js';
import { Logo } from '../parts/basics.js';
import { Field, values } from '../parts/form.js';
import { Lazily } from '../parts/lazily.js';
import * as words from '../words/en/signin.js';
import { busy as oneMoment } from '../words/en/common.js';

/** @param {string} username @param {string} password */
async function signInByPassword(username, password) {
  const login = await put('/login', { username, password }, { once: true });
  return sessionOf(login, username);
}

/** Run one of several ways to sign in, and say why it failed. */
export function useSignIn() {
  const [error, fail] = useState('');
  const [busy, set] = useState('');
  const run = async (/** @type {string} */ what, /** @type {() => Promise<any>} */ work) => {
    fail('');
    set(what);
    try {
      keep(await work());
    } catch (reason) {
      const { code, message } = /** @type {any} */ (reason);
      fail(code === 4001 ? words.declined : message);
    } finally {
      set('');
    }
  };
  return { error, busy, run };
}

/** @param {{setup: boolean, busy: string, run: (what: string, work: () => Promise<any>) => void, name?: string}} p */
export function PasswordForm({ setup, busy, run, name = '' }) {
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const { code = '', username = name, password } = values(event.currentTarget);
    run('password', async () => {
      if (setup) await call('POST', '/register/admin', { body: { username, password }, headers: { 'X-Setup-Code': code.trim() }, once: true });
      return signInByPassword(username, password);
    });
  };
  return html`<form class="form" onSubmit=${submit}>
    ${setup && html`<${Field} label=${words.setupCode}><input name="code" required autocomplete="one-time-code" autocapitalize="none" spellcheck=${false} /><//>`}
    ${!name && html`<${Field} label=${words.username}><input name="username" required autocomplete="username" defaultValue=${setup ? 'admin' : ''} autocapitalize="none" spellcheck=${false} /><//>`}
    <${Field} label=${words.password} hint=${setup ? words.passwordHint : ''}><input name="password" type="password" required minlength=${setup ? 8 : 1} autocomplete=${setup ? 'new-password' : 'current-password'} /><//>
    <button class="primary wide" disabled=${busy !== ''}>${busy === 'password' ? oneMoment : setup ? words.createAdministrator : words.signIn}</button></form>`;
}

/** @param {{boot: any}} p */
export function SignIn({ boot }) {
  const { error, busy, run } = useSignIn();
  const { setup } = boot;
  return html`<div class="gate"><main id="main" tabindex="-1" class="card">
    <div class="brand"><${Logo} size=${36} /><div><h1>${setup ? words.setUp : words.signIn}</h1><p>${words.where(boot.version, location.host)}</p></div></div>
    ${setup && html`<p class="hint">${words.setupText} <code>${boot.setupCodeIn}</code></p>`}
    <${PasswordForm} key=${setup} setup=${setup} busy=${busy} run=${run} />
    <div class="error" role="alert">${error}</div>
    ${!setup && boot.walletSignIn && html`<${Lazily} load=${() => import('./signin/wallets.js')} part="Wallets" busy=${busy} run=${run} />`}
    ${setup && html`<${Lazily} load=${() => import('../parts/code.js')} part="AsCommand" text="fieldbrook admin create" />`}</main></div>`;
}
