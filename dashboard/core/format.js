// @ts-check
/** Numbers, sizes and times as text. */

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const clockFormat = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3 });
// Control characters other than tab and line ends: text does not have them.
const CONTROLS = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f]/;
const dayFormat = new Intl.DateTimeFormat('en-CA', { year: 'numeric', month: '2-digit', day: '2-digit' });
const momentFormat = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', second: '2-digit' });
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });

export const NONE = '–';

/** A count: 1,234 – 12.3k – 4.5M. @param {number | null | undefined} value */
export function count(value) {
  if (value == null || Number.isNaN(value)) return NONE;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 1e5) return `${(value / 1e3).toFixed(0)}k`;
  return whole.format(value);
}

/** A rate with one decimal while it is small. @param {number | null | undefined} value */
export const rate = (value) => (value == null ? NONE : value > 0 && value < 10 ? value.toFixed(1) : count(value));

/** Milliseconds. @param {number | null | undefined} value */
export function duration(value) {
  if (value == null || Number.isNaN(value)) return NONE;
  if (value >= 60_000) return `${(value / 60_000).toFixed(1)} min`;
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return value >= 10 || Number.isInteger(value) ? `${value.toFixed(0)} ms` : `${value.toFixed(1)} ms`;
}

/** Bytes. @param {number | null | undefined} value */
export function size(value) {
  if (value == null) return NONE;
  if (value >= 1 << 30) return `${(value / (1 << 30)).toFixed(1)} GiB`;
  if (value >= 1 << 20) return `${(value / (1 << 20)).toFixed(1)} MiB`;
  return value >= 1024 ? `${(value / 1024).toFixed(1)} KiB` : `${value} B`;
}

/** How bad a level of a log is. @param {string} level @returns {'' | 'bad' | 'warn'} */
export const levelKind = (level) => (/err|fatal|panic|critical/i.test(level) ? 'bad' : /warn/i.test(level) ? 'warn' : '');

/** @typedef {string | number | null | undefined} Moment RFC 3339, or Unix milliseconds */

/** Time of day, local, with milliseconds. @param {Moment} time */
export const clock = (time) => (time == null ? NONE : clockFormat.format(new Date(time)));
/** Date, local. @param {Moment} time */
export const day = (time) => (time == null ? NONE : dayFormat.format(new Date(time)));
/** Date and time, local, to the second. @param {Moment} time */
export const moment = (time) => (time == null ? NONE : momentFormat.format(new Date(time)));
/** The same time in UTC, for hovering. @param {Moment} time */
export const utc = (time) => (time == null ? '' : new Date(time).toISOString());

/** How long ago, or in how long. @param {Moment} time @param {number} [now] */
export function ago(time, now = Date.now()) {
  if (time == null) return NONE;
  const seconds = (new Date(time).getTime() - now) / 1000;
  for (const [unit, length] of /** @type {[Intl.RelativeTimeFormatUnit, number][]} */ ([
    ['day', 86_400], ['hour', 3600], ['minute', 60],
  ]))
    if (Math.abs(seconds) >= length) return relative.format(Math.trunc(seconds / length), unit);
  return relative.format(Math.trunc(seconds), 'second');
}

/** UTF-8 as text; other bytes as text that `CONTROLS` recognises. @param {Uint8Array} raw */
function decoded(raw) {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(raw);
  } catch {
    return '\0';
  }
}

/**
 * A payload as text that can be read: JSON with indentation, other UTF-8 as it is, else hexadecimal.
 * @param {string} base64 @param {number} [limit] bytes shown of binary data
 * @returns {{kind: 'json' | 'text' | 'bytes' | 'empty', text: string}}
 */
export function readable(base64, limit = 2048) {
  const raw = Uint8Array.from(atob(base64 ?? ''), (c) => c.charCodeAt(0));
  if (!raw.length) return { kind: 'empty', text: '' };
  const text = decoded(raw);
  if (CONTROLS.test(text)) {
    const lines = [];
    for (let at = 0; at < Math.min(raw.length, limit); at += 16)
      lines.push([...raw.subarray(at, Math.min(at + 16, limit))].map((b) => b.toString(16).padStart(2, '0')).join(' '));
    return { kind: 'bytes', text: lines.join('\n') + (raw.length > limit ? '\n…' : '') };
  }
  try {
    return { kind: 'json', text: JSON.stringify(JSON.parse(text), null, 2) };
  } catch {
    return { kind: 'text', text };
  }
}

/** Text as base64 of its UTF-8. @param {string} text */
export function base64(text) {
  let binary = '';
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/**
 * Text quoted for a shell (POSIX 2024). Control characters, which a terminal would act on when the text is
 * pasted, are written as escapes.
 * @param {string} text
 */
export function quoted(text) {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (!CONTROLS.test(text)) return `'${text.replaceAll("'", "'\\''")}'`;
  const hex = (/** @type {string} */ c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`;
  return `$'${text.replace(/[\\']/g, '\\$&').replace(/[\0-\x1f\x7f]/g, hex)}'`;
}
