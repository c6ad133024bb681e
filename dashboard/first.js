// @ts-check
/** Loads and asks early what the first page needs: a classic script runs before modules. */
const boot = `${location.origin}/srv-applet-mgr/v0/configuration/dashboard`;
const asked = fetch(boot, { credentials: 'omit', cache: 'no-store', signal: AbortSignal.timeout(30_000) });
asked.catch(() => undefined); // who waits for it tells of a failure
Object.assign(window, { early: { [boot]: asked } });
for (const name of sessionStorage['fieldbrook.session']
  ? ['shell.js', 'core/stream.js', 'core/series.js', 'words/en/shell.js']
  : ['pages/signin.js', 'parts/form.js', 'words/en/signin.js']) {
  const href = new URL(name, /** @type {any} */ (document.currentScript).src);
  document.head.append(Object.assign(document.createElement('link'), { rel: 'modulepreload', href }));
}
