// @ts-check
/** Settings of a project: description, variables, limits, operator, export, deletion. */
import { html } from '../../vendor/preact.js';
import { General } from './settings/general.js';
import { Limits } from './settings/limits.js';
import { Operator } from './settings/operator.js';
import { Danger, Export } from './settings/transfer.js';
import { Variables } from './settings/variables.js';

/** @param {Project} p */
export const Page = ({ name, id, project, again, changed }) => html`<div class="halves"><div class="stack"><${General} name=${name} project=${project} again=${again} /><${Variables} name=${name} project=${project} again=${again} /></div>
    <div class="stack"><${Operator} name=${name} id=${id} /><${Export} name=${name} /></div></div>
  <${Limits} project=${name} /><${Danger} name=${name} changed=${changed} />`;
