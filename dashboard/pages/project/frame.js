// @ts-check
/** The frame of a project's pages: its name, its rate, its tabs. */
import { html } from '../../vendor/preact.js';
import { useLoad } from '../../core/load.js';
import { count, rate } from '../../core/format.js';
import { to } from '../../core/route.js';
import { rates } from '../../core/series.js';
import { Badge, Heading, Icon, Problem, Show, Waiting } from '../../parts/basics.js';
import { useModule } from '../../parts/lazily.js';
import * as words from '../../words/en/projects.js';
import { projectPages } from '../../words/en/shell.js';

/** @param {string} name @param {Get} get */
async function load(name, get) {
  const segment = encodeURIComponent(name);
  const [project, applets, publishers, letters] = await Promise.all([
    get(`/project/x/${segment}/data`),
    get(`/applet/x/${segment}/datalist`, { size: 200 }),
    get(`/publisher/x/${segment}`, { size: 1000 }),
    get(`/dead_letter/${segment}`, { limit: 1 }),
  ]);
  return { project, id: project.projectID, applets: applets.data, publishers: publishers.data, letters: letters.total };
}

/** @param {{name: string, tab: string, letters: number}} p */
const Tabs = ({ name, tab, letters }) => html`<nav class="tabs" aria-label=${words.pages}>${Object.entries(projectPages).map(([page, title]) => html`<a href=${to('projects', name, page)} aria-current=${page === tab ? 'page' : undefined}>${title}${page === 'letters' && letters > 0 && html`<${Badge} kind="bad">${count(letters)}<//>`}</a>`)}</nav>`;

/** @param {{name: string, tab: string, more: string[], changed: () => void}} p */
export function Page({ name, tab, more, changed }) {
  const loaded = useLoad((get) => load(name, get), [name], 15_000);
  const { module, error } = useModule(() => import(`./${tab}.js`), tab);
  const events = rates.value[name]?.events ?? 0;
  const again = () => {
    loaded.again();
    changed(); // the list of projects names applets, too
  };
  const content = (/** @type {Awaited<ReturnType<typeof load>>} */ data) => {
    if (error) return html`<${Problem} error=${error} again=${() => location.reload()} />`;
    if (!module) return html`<${Waiting} />`;
    return html`<${module.Page} key=${tab} ...${data} name=${name} more=${more} again=${again} changed=${changed} />`;
  };
  return html`<div class="page"><${Heading} title=${name} text=${events ? words.eventsPerSecond(rate(events)) : words.noEvents}>
      ${tab !== 'console' && html`<a class="button" href=${to('projects', name, 'console')}><${Icon} name="send" />${words.send}</a>`}<//>
    <${Tabs} name=${name} tab=${tab} letters=${loaded.data?.letters ?? 0} />
    <${Show} of=${loaded}>${content}<//></div>`;
}
