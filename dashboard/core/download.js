// @ts-check
/** Files that the page hands to the browser's downloads. */

/** @param {Blob} blob @param {string} name of the file */
export function download(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser reads it after the click
}
