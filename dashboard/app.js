// @ts-check
/** The dashboard: the sign-in, or what an account sees. Neither loads the files of the other. */
import { html, render, useEffect } from './vendor/preact.js';
import { go, path } from './core/route.js';
import { session } from './core/session.js';
import { useLoad } from './core/load.js';
import { Problem, Toasts, Waiting } from './parts/basics.js';
import { Lazily } from './parts/lazily.js';
import './core/theme.js';

const signIn = () => import('./pages/signin.js');
const account = () => import('./shell.js');

function App() {
  const signedIn = session.value !== null;
  const boot = useLoad((get) => get('/configuration/dashboard', {}, { once: true }), [signedIn], 60_000);
  useEffect(() => {
    if (!boot.data) return;
    const gate = path.value === '/setup' || path.value === '/signin';
    if (boot.data.setup && !signedIn && path.value !== '/setup') go('/setup');
    else if (gate && (signedIn || (path.value === '/setup' && !boot.data.setup))) go(signedIn ? '/' : '/signin');
  }, [boot.data, signedIn, path.value]);
  if (!boot.data) return boot.error ? html`<div class="gate"><${Problem} error=${boot.error} again=${boot.again} /></div>` : html`<div class="gate"><${Waiting} /></div>`;
  return html`${signedIn ? html`<${Lazily} load=${account} part="SignedIn" boot=${boot.data} />` : html`<${Lazily} load=${signIn} part="SignIn" boot=${boot.data} />`}<${Toasts} />`;
}

const root = /** @type {Element} */ (document.getElementById('app'));
root.replaceChildren(); // what the page says while it has no files
(session.value ? account : signIn)().catch(() => undefined); // a failure is told later
render(html`<${App} />`, root);
