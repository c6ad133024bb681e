import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KEPT, LOADED, Tail } from '../dashboard/core/tail.js';

const row = (number) => ({ place: number });
const numbers = (rows) => rows.map(({ place }) => place);
const made = () => new Tail(({ place }) => String(place));

test('the newest rows are on top, each once, and the list is bounded', () => {
  const tail = made();
  tail.fill([row(2), row(1)]);
  tail.add({ rows: [row(3), row(4)] }, 0);
  tail.extend([row(1), row(0)]);
  assert.deepEqual(numbers(tail.shown), [4, 3, 2, 1, 0]);
  tail.add({ rows: Array.from({ length: KEPT }, (_, i) => row(i + 5)) }, 0);
  assert.equal(tail.rows.length, KEPT);
});

test('what came adds up: listed and left out', () => {
  const tail = made();
  tail.add({ rows: [row(1)], total: 100, left_out: 99, failed: 2, slowest_ms: 7 }, 1000);
  tail.add({ rows: [row(2)], total: 50, left_out: 49 }, 1500);
  assert.equal(tail.total, tail.rows.length + tail.leftOut);
  assert.equal(tail.failed, 2);
  assert.equal(tail.rate(1500), 50);
  assert.equal(tail.rate(10_000), 0);
});

test('the rate is that of the last seconds, however far apart the messages are', () => {
  const tail = made();
  for (let at = 0; at <= 10_000; at += 2000) tail.add({ rows: [], total: 4000, left_out: 4000 }, at);
  assert.equal(tail.rate(10_000), 2000);
  assert.equal(tail.rate(11_900), 2000);
  assert.equal(tail.rate(13_100), 0);
});

test('a list that is held shows the same rows and counts the newer ones', () => {
  const tail = made();
  tail.add({ rows: [row(1)] }, 0);
  tail.hold(true);
  tail.add({ rows: [row(2)], total: 10, left_out: 9 }, 0);
  assert.deepEqual(numbers(tail.shown), [1]);
  assert.equal(tail.newer, 10);
  tail.extend([row(0)]);
  assert.deepEqual(numbers(tail.shown), [1, 0]);
  tail.hold(false);
  assert.deepEqual(numbers(tail.shown), [2, 1, 0]);
  assert.equal(tail.newer, 0);
});

test('a list that is held for long keeps a bounded number of rows', () => {
  const tail = made();
  tail.add({ rows: [row(-1)] }, 0);
  tail.hold(true);
  for (let at = 0; at < LOADED + 100; at += 50) tail.add({ rows: Array.from({ length: 50 }, (_, i) => row(at + i)) }, 0);
  assert.equal(tail.rows.length, LOADED);
});
