// @ts-check
/** Loads early what the first page imports: a classic script runs before modules. */
for (const name of sessionStorage['fieldbrook.session']
  ? ['shell.js', 'core/stream.js', 'core/series.js', 'words/en/shell.js']
  : ['pages/signin.js', 'core/wallet.js', 'parts/code.js', 'parts/dialog.js', 'parts/form.js', 'words/en/signin.js']) {
  const href = new URL(name, /** @type {any} */ (document.currentScript).src);
  document.head.append(Object.assign(document.createElement('link'), { rel: 'modulepreload', href }));
}
