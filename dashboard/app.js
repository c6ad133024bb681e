// @ts-check
import { html, render, signal } from './vendor/preact.js';

const version = signal('');

function Page() {
  return html`<main><h1>fieldbrook</h1><p role="status">${version.value || 'asking the node…'}</p></main>`;
}

async function load() {
  const answer = await fetch('/version', { credentials: 'omit' });
  version.value = answer.ok ? await answer.text() : `the node answered ${answer.status}`;
}

const root = document.getElementById('app');
if (root) render(html`<${Page} />`, root);
load().catch((error) => {
  version.value = `the node does not answer: ${error.message}`;
});
