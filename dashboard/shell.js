// @ts-check
/** The frame around all pages: navigation, account, and strips about the node's state. */
import { html, signal, useEffect, useState } from './vendor/preact.js';
import { signOut } from './core/api.js';
import { online, slow, upgraded } from './core/node_state.js';
import { path, to } from './core/route.js';
import { refused } from './core/stream.js';
import { rates } from './core/series.js';
import { isAdmin, session } from './core/session.js';
import { dark, toggleTheme } from './core/theme.js';
import { attempt } from './core/load.js';
import { Failed, Icon, Logo, Mark } from './parts/basics.js';
import { Lazily } from './parts/lazily.js';
import * as words from './words/en/shell.js';
import { product } from './words/en/common.js';

const SHOWN = 30; // projects in the navigation; the rest is on the page of all projects
const ICONS = { health: 'heart', chains: 'chain', accounts: 'people', keys: 'key', audit: 'shield', refused: 'ban', settings: 'gear', log: 'list' };
const FOR_ADMINS = new Set(['health', 'accounts', 'audit', 'refused', 'settings', 'log']);
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

/** @param {{projects: import('./core/load.js').Loaded<Api.ProjectRows>}} p */
function Navigation({ projects }) {
  const now = rates.value;
  const isOthers = (/** @type {Api.ProjectRow} */ one) => Number(one.accountID !== session.value?.accountID);
  const shown = (projects.data?.data ?? []).toSorted((a, b) => isOthers(a) - isOthers(b)).slice(0, SHOWN);
  return html`<${Item} to="/" icon="pulse" exact>${words.overview}</${Item}>
    <h2><a href="/projects">${words.projects}</a></h2>
    ${!projects.data && html`<${Failed} of=${projects} />`}${shown.map((project) => html`<${Item} key=${project.projectID} to=${to('projects', project.projectName)} icon="box" extra=${now[project.projectName]?.events ? html`<span class="rate">${words.perSecond(now[project.projectName].events)}</span>` : null}>${project.projectName}</${Item}>`)}
    <${Item} to="/projects" icon="list" exact>${words.allProjects}</${Item}>
    <h2>${words.node}</h2>
    ${Object.entries(words.nodePages).filter(([page]) => isAdmin() || !FOR_ADMINS.has(page)).map(([page, title]) => html`<${Item} to=${`/node/${page}`} icon=${/** @type {any} */ (ICONS)[page]}>${title}</${Item}>`)}
    <a href="/docs/" class="item" target="_blank" rel="noopener"><${Icon} name="book" /><span>${words.documentation}</span></a>`;
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

/** @param {{projects: import('./core/load.js').Loaded<Api.ProjectRows>, children?: any}} p */
export function Shell({ projects, children }) {
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
        <div class="items"><${Navigation} projects=${projects} /></div><${Who} />
      </nav>
      <main id="main" tabindex="-1" class=${online.value ? '' : 'old'}><${Strips} />${children}</main>
    </div>${searching.value && html`<${Lazily} load=${() => import('./search.js')} part="Search" projects=${projects.data?.data ?? []} onClose=${endSearch} />`}`;
}
