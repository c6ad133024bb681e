// @ts-check
/** The rows of a live list: bounded, the newest first, and still while somebody looks at them. */

export const KEPT = 2000; // rows while the list is live
const KEPT_MS = 6000; // how long counts are kept
const SHOWN_MS = 3000; // a rate is that of so long, at least
export const LOADED = 20_000; // rows when older ones were loaded on purpose

/**
 * @typedef {object} News what the stream sends
 * @property {any[]} rows the oldest first
 * @property {number} [total] all that came, listed or not
 * @property {number} [failed]
 * @property {number} [left_out]
 * @property {number} [slowest_ms]
 */

export class Tail {
  /** @param {(row: any) => string} key names a row */
  constructor(key) {
    this.key = key;
    /** @type {any[]} the newest first */
    this.rows = [];
    this.total = 0;
    this.failed = 0;
    this.leftOut = 0;
    this.slowest = 0;
    /** @type {[number, number][]} time and count of the last seconds */
    this.counts = [];
    /** @type {{rows: any[], seen: number} | null} what is shown while the list stands still */
    this.frozen = null;
  }

  /** Take the rows that a page opens with. @param {any[]} rows the newest first */
  fill(rows) {
    const known = new Set(this.rows.map(this.key));
    this.rows = [...this.rows, ...rows.filter((row) => !known.has(this.key(row)))];
  }

  /** Take older rows, which go to the end. @param {any[]} rows the newest first */
  extend(rows) {
    this.fill(rows);
    this.rows = this.rows.slice(0, LOADED);
    if (this.frozen) this.frozen.rows = this.rows.slice(this.rows.indexOf(this.frozen.rows[0]));
  }

  /** @param {News} news @param {number} now milliseconds */
  add(news, now) {
    const fresh = news.rows.toReversed();
    const total = news.total ?? fresh.length;
    this.rows = [...fresh, ...this.rows];
    if (!this.frozen) this.rows = this.rows.slice(0, KEPT);
    else if (this.rows.length > LOADED) this.rows = this.rows.slice(0, LOADED);
    this.total += total;
    this.failed += news.failed ?? 0;
    this.leftOut += news.left_out ?? 0;
    this.slowest = Math.max(this.slowest * 0.98, news.slowest_ms ?? 0);
    this.counts = [...this.counts.filter(([time]) => now - time < KEPT_MS), [now, total]];
  }

  /** Let the list stand still, or go on. @param {boolean} still */
  hold(still) {
    if (!still) this.frozen = null;
    else this.frozen ??= { rows: this.rows, seen: this.total };
  }

  /** What is shown. */
  get shown() {
    return this.frozen?.rows ?? this.rows;
  }

  /** How many came since the list stands still. */
  get newer() {
    return this.frozen ? this.total - this.frozen.seen : 0;
  }

  /** Rows a second, over the last messages, which may be two seconds apart. @param {number} now */
  rate(now) {
    const [[first] = [now], ...later] = this.counts;
    const [last] = later.at(-1) ?? [first];
    const sum = (/** @type {[number, number][]} */ counts) => counts.reduce((all, [, count]) => all + count, 0);
    if (now - last < SHOWN_MS && last - first >= SHOWN_MS) return (sum(later) / (last - first)) * 1000;
    return (sum(this.counts.filter(([time]) => now - time < SHOWN_MS)) / SHOWN_MS) * 1000;
  }
}
