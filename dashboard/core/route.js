// @ts-check
/** The address of the page: its path and the filters in its query. */
import { signal } from '../vendor/preact.js';

export const path = signal(location.pathname);
/** @type {Signal<Record<string, string>>} */
export const query = signal(Object.fromEntries(new URLSearchParams(location.search)));

function read() {
  path.value = location.pathname;
  query.value = Object.fromEntries(new URLSearchParams(location.search));
}

/** Open another page. @param {string} to a path, perhaps with a query */
export function go(to) {
  history.pushState(null, '', to);
  read();
  scrollTo(0, 0);
  document.getElementById('main')?.focus({ preventScroll: true });
}

/**
 * Change filters in the address; empty ones leave it. The page stays in the history once, however
 * often its filters change.
 * @param {Record<string, string | number | boolean | null | undefined>} changes
 */
export function filter(changes) {
  const next = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes))
    if (value === '' || value === false || value == null) next.delete(name);
    else next.set(name, value === true ? '1' : String(value));
  const text = next.toString();
  history.replaceState(null, '', location.pathname + (text ? `?${text}` : ''));
  read();
}

/** An address of the dashboard from segments, each encoded. @param {...string} segments */
export const to = (...segments) => `/${segments.map(encodeURIComponent).join('/')}`;

addEventListener('popstate', read);
addEventListener('click', (event) => {
  const target = /** @type {Element} */ (event.target);
  const link = target.closest?.('a[href^="/"]:not([target]):not([download])');
  const href = link?.getAttribute('href') ?? '';
  const elsewhere = event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
  if (!link || event.defaultPrevented || elsewhere || href.startsWith('/docs')) return;
  event.preventDefault();
  go(href);
});
