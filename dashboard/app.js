// @ts-check
/** The dashboard: the sign-in, or what an account sees. */
import { html, render, useEffect } from './vendor/preact.js';
import { go, path } from './core/route.js';
import { session } from './core/session.js';
import { useLoad } from './core/load.js';
import { Problem, Toasts, Waiting } from './parts/basics.js';
import { SignIn } from './pages/signin.js';
import { SignedIn } from './shell.js';
import './core/theme.js';

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
  return html`<${signedIn ? SignedIn : SignIn} boot=${boot.data} /><${Toasts} />`;
}

const root = /** @type {Element} */ (document.getElementById('app'));
root.replaceChildren(); // what the page says while it has no files
render(html`<${App} />`, root);
