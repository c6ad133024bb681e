// @ts-check
/** The first steps on a new node: a project, an applet, an event. They vanish when all are done. */
import { html } from '../vendor/preact.js';
import { to } from '../core/route.js';
import { recent } from '../core/series.js';
import { Badge } from './basics.js';
import * as words from '../words/en/overview.js';

/** @param {{projects: any[]}} p none or one, as `GET /project/detail_list` answers them */
export function FirstSteps({ projects }) {
  const [project] = projects;
  const name = project?.projectName;
  const hasApplet = projects.some((one) => one.applets?.length);
  const hasEvents = recent.value.t.some((_, i) => (recent.value.events?.[i] ?? 0) > 0);
  if (hasApplet && hasEvents) return null;
  const steps = [
    { done: !!project, text: words.steps.project, href: '/projects?new=1' },
    { done: hasApplet, text: words.steps.applet, href: name && to('projects', name, 'applets') },
    { done: hasApplet && hasEvents, text: words.steps.event, href: name && to('projects', name, 'console') },
  ];
  const next = steps.findIndex(({ done }) => !done);
  return html`<section class="steps" aria-label=${words.firstSteps}>${steps.map(({ done, text: [title, hint], href }, i) => html`<div class=${`step card ${done ? 'done' : ''}`}>
    <div class="line"><span class="number" aria-hidden="true">${i + 1}</span><h2>${title}</h2>${done && html`<${Badge} kind="good">${words.done}<//>`}</div><p class="hint">${hint}</p>
    ${i === next && href && html`<div><a class="button primary" href=${href}>${words.open}</a></div>`}</div>`)}</section>`;
}
