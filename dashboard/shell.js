// @ts-check
/** What an account sees: the frame with navigation and the node's state, and the page that the address names. */
import { html, signal, useEffect, useErrorBoundary, useState } from './vendor/preact.js';
import { signOut } from './core/api.js';
import { online, slow, upgraded } from './core/node_state.js';
import { path, to } from './core/route.js';
import { refused } from './core/stream.js';
import { followSeries, rates } from './core/series.js';
import { expired, isAdmin, session } from './core/session.js';
import { dark, toggleTheme } from './core/theme.js';
import { attempt, useLoad } from './core/load.js';
import { Empty, Failed, Icon, Logo, Mark, Problem, Waiting } from './parts/basics.js';
import { Lazily, useModule, withStyles } from './parts/lazily.js';
import * as words from './words/en/shell.js';
import { product } from './words/en/common.js';

const SHOWN = 30; // projects in the navigation; the rest is on the page of all projects
const ICONS = { health: 'heart', hosts: 'terminal', chains: 'chain', accounts: 'people', keys: 'key', audit: 'shield', refused: 'ban', settings: 'gear', log: 'list' };
const FOR_ADMINS = new Set(['health', 'hosts', 'accounts', 'audit', 'refused', 'settings', 'log']);
const searching = signal(false);
const openSearch = () => (searching.value = true);
const endSearch = () => (searching.value = false);
addEventListener('keydown', (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== 'k') return;
  event.preventDefault();
  searching.value = !searching.value;
});

/** @param {{to: string, icon: string, children?: any, extra?: any, exact?: boolean}} p */
function Item({ to: href, icon: name, children, extra = null, exact = false }) {
  const here = path.value === href || (!exact && path.value.startsWith(`${href}/`));
  return html`<a href=${href} class="item" aria-current=${here ? 'page' : undefined}><${Icon} name=${name} /><span>${children}</span>${extra}</a>`;
}

/** @param {{projects: Loaded<Api.ProjectRows>, node: string[][]}} p */
function Navigation({ projects, node }) {
  const now = rates.value;
  const isOthers = (/** @type {Api.ProjectRow} */ one) => Number(one.accountID !== session.value?.accountID);
  const shown = (projects.data?.data ?? []).toSorted((a, b) => isOthers(a) - isOthers(b)).slice(0, SHOWN);
  return html`<${Item} to="/" icon="pulse" exact>${words.overview}<//>
    <h2><a href="/projects">${words.projects}</a></h2>
    ${!projects.data && html`<${Failed} of=${projects} />`}${shown.map((project) => html`<${Item} key=${project.projectID} to=${to('projects', project.projectName)} icon="box" extra=${now[project.projectName]?.events ? html`<span class="rate">${words.perSecond(now[project.projectName].events)}</span>` : null}>${project.projectName}<//>`)}
    <${Item} to="/projects" icon="list" exact>${words.allProjects}<//>
    <h2>${words.node}</h2>
    ${node.map(([page, title]) => html`<${Item} to=${`/node/${page}`} icon=${/** @type {any} */ (ICONS)[page]}>${title}<//>`)}
    <a href="/docs/" class="item" target="_blank"><${Icon} name="book" /><span>${words.documentation}</span></a>`;
}

function Who() {
  const name = session.value?.name ?? '';
  return html`<div class="who"><span class="avatar" aria-hidden="true">${name.slice(0, 1).toUpperCase()}</span>
    <span class="name">${name}<small>${session.value?.accountRole?.toLowerCase()}</small></span>
    <${Mark} icon=${dark.value ? 'sun' : 'moon'} kind="square" label=${dark.value ? words.light : words.dark} title=${dark.value ? words.light : words.dark} onClick=${toggleTheme} />
    <${Mark} icon="leave" kind="square" label=${words.signOut} title=${words.signOut} onClick=${() => attempt(signOut)} /></div>`;
}

/** What the node's state means for the page. */
const Strips = () => html`${!online.value && html`<div class="strip bad" role="alert">${words.offline}</div>`}
    ${online.value && slow.value && html`<div class="strip" role="status">${words.slow}</div>`}
    ${online.value && refused.value && html`<div class="strip" role="status">${words.noStream(refused.value)}</div>`}
    ${upgraded.value && html`<div class="strip" role="status">${words.upgraded} <button type="button" class="small" onClick=${() => location.reload()}>${words.reload}</button></div>`}`;

/** @param {{projects: Loaded<Api.ProjectRows>, boot: Api.DashboardReply, children?: any}} p */
function Shell({ projects, boot, children }) {
  const node = Object.entries(words.nodePages).filter(([page]) => (isAdmin() || !FOR_ADMINS.has(page)) && (boot.cluster || page !== 'hosts'));
  const [open, set] = useState(false);
  useEffect(() => set(false), [path.value]);
  const skip = (/** @type {Event} */ event) => {
    event.preventDefault();
    document.getElementById('main')?.focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>${words.skip}</a>
    <div class="shell">
      <header class="top"><${Mark} icon="menu" kind="square" label=${words.menu} aria-expanded=${open} onClick=${() => set(!open)} />
        <strong>${product}</strong><${Mark} icon="search" kind="square" label=${words.search} onClick=${openSearch} /></header>
      <nav class=${`side ${open ? 'open' : ''}`} aria-label=${words.navigation}>
        <a class="logo" href="/"><${Logo} size=${24} /><strong>${product}</strong></a>
        <button type="button" class="search" onClick=${openSearch}><${Icon} name="search" /><span>${words.search}</span><kbd>${words.searchKeys}</kbd></button>
        <div class="items"><${Navigation} projects=${projects} node=${node} /></div><${Who} />
      </nav>
      <main id="main" tabindex="-1" class=${online.value ? '' : 'old'}><${Strips} />${children}</main>
    </div>${searching.value && html`<${Lazily} load=${() => import('./search.js')} part="Search" node=${node} projects=${projects.data?.data ?? []} onClose=${endSearch} />`}`;
}

/**
 * The module and the properties of a page. Modules are loaded when their page is opened first.
 * @param {string[]} parts of the path, decoded
 * @returns {{load: () => Promise<any>, props?: Values, title: string} | null}
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

/** @param {{projects: Loaded<Api.ProjectRows>}} p */
function Page({ projects }) {
  const parts = path.value.split('/').slice(1).map(decodeURIComponent);
  const found = pageAt(parts);
  const place = parts.slice(0, parts[0] === 'projects' ? 2 : 3).join('/');
  const { module, error } = useModule(found?.load, place);
  useEffect(() => {
    document.title = `${found?.title ?? words.noPage} – ${product}`;
  }, [path.value]);
  if (!found) return html`<div class="page"><${Empty} title=${words.noPage}><a href="/">${words.toOverview}</a><//></div>`;
  if (error) return html`<div class="page"><${Problem} error=${error} again=${() => location.reload()} /></div>`;
  if (!module) return html`<div class="page"><${Waiting} rows=${6} /></div>`;
  return html`<${Guarded} key=${place}><${module.Page} ...${found.props} projects=${projects} changed=${projects.again} /><//>`;
}

/** A page that fails shows its error and leaves the frame usable. @param {{children?: any}} p */
function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((/** @type {Error} */ reason) => console.error(reason));
  return error ? html`<div class="page"><${Problem} error=${error} again=${reset} /></div>` : children;
}

/** @param {{boot: Api.DashboardReply}} p */
export function SignedIn({ boot }) {
  const projects = useLoad((get) => get('/project/detail_list', { size: 1000, all: isAdmin() }), [session.value?.accountID], 30_000);
  useEffect(followSeries, [session.value?.accountID]);
  return html`<${Shell} projects=${projects} boot=${boot}><${Page} projects=${projects} /><//>
    ${expired.value && html`<${Lazily} load=${() => import('./pages/signin/again.js')} part="SignInAgain" boot=${boot} />`}`;
}
