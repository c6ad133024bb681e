// @ts-check
/** The payload in the editor: its bytes, and what is wrong with it. */
import { base64, size } from '../../../core/format.js';
import * as words from '../../../words/en/console.js';

/** Letters of base64 without spaces. @param {string} text */
const letters = (text) => text.replace(/\s+/g, '');

/**
 * @param {string} text @param {string} encoding text or base64
 * @returns {{ok: boolean, note: string, base64: string, json: boolean}}
 */
export function checked(text, encoding) {
  if (encoding === 'base64') {
    try {
      return { ok: true, note: words.isText + words.bytes(size(atob(letters(text)).length)), base64: letters(text), json: false };
    } catch {
      return { ok: false, note: words.notBase64, base64: '', json: false };
    }
  }
  const encoded = base64(text);
  const bytes = words.bytes(size(new TextEncoder().encode(text).length));
  if (!/^\s*[[{]/.test(text)) return { ok: true, note: words.isText + bytes, base64: encoded, json: false };
  try {
    JSON.parse(text);
    return { ok: true, note: words.isJson + bytes, base64: encoded, json: true };
  } catch (error) {
    return { ok: false, note: words.notJson(/** @type {Error} */ (error).message), base64: encoded, json: false };
  }
}
