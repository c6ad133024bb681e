// @ts-check
/** Asks early what the first page needs. The node puts this script into the page. */
const boot = `${location.origin}/srv-applet-mgr/v0/configuration/dashboard`;
const asked = fetch(boot, { credentials: 'omit', cache: 'no-store', signal: AbortSignal.timeout(30_000) });
asked.catch(() => undefined); // who waits for it tells of a failure
Object.assign(window, { early: { [boot]: asked } });
