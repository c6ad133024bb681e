// @ts-check
/** What handlers keep: key-value pairs and SQL tables. */
import { html } from '../../vendor/preact.js';
import { KeyValues } from './key_values.js';
import { Tables } from './tables.js';

/** @param {Project} p */
export const Page = ({ name, applets }) => html`<${KeyValues} project=${name} applets=${applets} /><${Tables} project=${name} />`;
