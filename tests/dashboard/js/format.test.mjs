import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ago, base64, count, duration, quoted, readable, size } from '../dashboard/core/format.js';

test('numbers get shorter as they grow', () => {
  assert.deepEqual([0, 999, 12_345, 123_456, 4_500_000].map(count), ['0', '999', '12,345', '123k', '4.5M']);
  assert.deepEqual([0, 0.25, 12, 1500, 90_000].map(duration), ['0 ms', '0.3 ms', '12 ms', '1.50 s', '1.5 min']);
  assert.deepEqual([12, 2048, 3 << 20, 5 * 2 ** 30].map(size), ['12 B', '2.0 KiB', '3.0 MiB', '5.0 GiB']);
  assert.equal(count(null), '–');
});

test('a payload is shown as JSON, text or bytes', () => {
  assert.deepEqual(readable(base64('{"a":1}')), { kind: 'json', text: '{\n  "a": 1\n}' });
  assert.deepEqual(readable(base64('21.5 °C')), { kind: 'text', text: '21.5 °C' });
  assert.deepEqual(readable(btoa('\xff\x00')), { kind: 'bytes', text: 'ff 00' });
  assert.deepEqual(readable(''), { kind: 'empty', text: '' });
  assert.equal(readable(btoa('\xff'.repeat(5000)), 32).text.split('\n').length, 3);
});

test('times are told from now', () => {
  const now = Date.parse('2026-01-02T00:00:00Z');
  assert.equal(ago('2026-01-01T00:00:00Z', now), 'yesterday');
  assert.equal(ago('2026-01-01T23:59:30Z', now), '30 seconds ago');
  assert.equal(ago(null, now), '–');
});

test('text for a shell is quoted when it has to be', () => {
  assert.equal(quoted('room_1'), 'room_1');
  assert.equal(quoted("it's $(x)"), "'it'\\''s $(x)'");
  assert.equal(quoted("a\x1b[2J'\\\n"), "$'a\\x1b[2J\\'\\\\\\x0a'");
});
