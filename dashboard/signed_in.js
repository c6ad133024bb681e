// @ts-check
/** What an account sees: the frame, and the page that the address names. */
import { html, useEffect, useErrorBoundary } from './vendor/preact.js';
import { get } from './core/api.js';
import { path } from './core/route.js';
import { followSeries } from './core/series.js';
import { expired, isAdmin, session } from './core/session.js';
import { useLoad } from './core/load.js';
import { Empty, Problem, Waiting } from './parts/basics.js';
import { Lazily, useModule, withStyles } from './parts/lazily.js';
import { Shell } from './shell.js';
import * as words from './words/en/shell.js';
import { product } from './words/en/common.js';

/**
 * The module and the properties of a page. Modules are loaded when their page is opened first.
 * @param {string[]} parts of the path, decoded
 * @returns {{load: () => Promise<any>, props?: Record<string, any>, title: string} | null}
 */
function pageAt([area = '', name, tab = '', ...more]) {
  if (!area) return { load: () => withStyles(import('./pages/overview.js'), '../vendor/uplot'), title: words.overview };
  if (area === 'projects' && !name) return { load: () => import('./pages/projects.js'), title: words.projects };
  if (area === 'projects') {
    const page = tab || 'flow';
    const title = /** @type {Record<string, string>} */ (words.projectPages)[page];
    return title ? { load: () => withStyles(import('./pages/project/frame.js'), 'project', 'flow'), props: { name, tab: page, more }, title: `${name} · ${title}` } : null;
  }
  const title = /** @type {Record<string, string>} */ (words.nodePages)[name ?? 'health'];
  if (area === 'node' && title) return { load: () => withStyles(import(`./pages/node/${name ?? 'health'}.js`), 'node'), props: { more: tab }, title };
  return null;
}

/** @param {{projects: import('./core/load.js').Loaded<Api.ProjectRows>}} p */
function Page({ projects }) {
  const parts = path.value.split('/').slice(1).map(decodeURIComponent);
  const found = pageAt(parts);
  const place = parts.slice(0, parts[0] === 'projects' ? 2 : 3).join('/');
  const { module, error } = useModule(found?.load, place);
  useEffect(() => {
    document.title = `${found?.title ?? words.noPage} – ${product}`;
  }, [path.value]);
  if (!found) return html`<div class="page"><${Empty} title=${words.noPage}><a href="/">${words.toOverview}</a></${Empty}></div>`;
  if (error) return html`<div class="page"><${Problem} error=${error} again=${() => location.reload()} /></div>`;
  if (!module) return html`<div class="page"><${Waiting} rows=${6} /></div>`;
  return html`<${Guarded} key=${place}><${module.Page} ...${found.props} projects=${projects} changed=${projects.again} /></${Guarded}>`;
}

/** A page that fails shows its error and leaves the frame usable. @param {{children?: any}} p */
function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((/** @type {Error} */ reason) => console.error(reason));
  return error ? html`<div class="page"><${Problem} error=${error} again=${reset} /></div>` : children;
}

/** @param {{boot: Api.DashboardReply}} p */
export function SignedIn({ boot }) {
  const projects = useLoad((signal) => get('/project/detail_list', { size: 1000, all: isAdmin() }, { signal }), [session.value?.accountID], 30_000);
  useEffect(followSeries, [session.value?.accountID]);
  return html`<${Shell} projects=${projects}><${Page} projects=${projects} /></${Shell}>
    ${expired.value && html`<${Lazily} load=${() => import('./pages/signin.js')} part="SignInAgain" boot=${boot} />`}`;
}
