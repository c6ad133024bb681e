// @ts-check
/** What handlers keep: key-value pairs. */
import { html } from '../../vendor/preact.js';
import { KeyValues } from './key_values.js';

/** @param {import('./frame.js').Project} p */
export const Page = ({ name, applets }) => html`<${KeyValues} project=${name} applets=${applets} />`;
