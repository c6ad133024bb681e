"""Handlers with long computations, and clients that keep them busy."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from tests.support.nodes import RunningNode, message

KEYS = b"abcdefgh"

BATCH = 40

# `start` computes for some hundred microseconds, adds one to the value under its payload (u64,
# little-endian) and returns MARK.
HEAVY = """
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (global $heap (mut i32) (i32.const 4096))
  (func (export "alloc") (param $size i32) (result i32) (local $at i32)
    (local.set $at (global.get $heap))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (local.get $at))
  (func (export "start") (param $rid i32) (result i32) (local $i i32) (local $s i32)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4)))
    (i64.store (i32.const 128) (i64.const 0))
    (if (i32.eqz (call $get_db (i32.load (i32.const 0)) (i32.load (i32.const 4))
        (i32.const 16) (i32.const 20)))
      (then (i64.store (i32.const 128) (i64.load (i32.load (i32.const 16))))))
    (loop $next
      (local.set $s (i32.add (i32.mul (local.get $s) (i32.const 1664525)) (i32.const 1013904223)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $i) (i32.const 400000))))
    (i64.store (i32.const 128) (i64.add (i64.load (i32.const 128))
      (i64.extend_i32_u (i32.or (i32.const 1) (i32.and (local.get $s) (i32.const 0))))))
    (drop (call $set_db (i32.load (i32.const 0)) (i32.load (i32.const 4))
      (i32.const 128) (i32.const 8)))
    (i32.const MARK)))
"""


def module(mark: int) -> bytes:
    return HEAVY.replace("MARK", str(mark)).encode()


class Load:
    """Sends batches of several publishers, one after the other, from two clients, until its end."""

    def __init__(self, node: RunningNode, project: str) -> None:
        self._node, self._project = node, project
        self.publishers = [node.add_publisher(project, f"{project}-{n}") for n in KEYS]
        self._over = threading.Event()
        self.codes: list[int] = []
        self._adding = threading.Lock()

    def __enter__(self) -> Load:
        self._pool = ThreadPoolExecutor(2)
        self._running = [self._pool.submit(self._run) for _ in range(2)]
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._pool:
            for running in self._running:
                running.result()

    def _run(self) -> None:
        while not self._over.is_set():
            self.send()

    def send(self) -> list[int]:
        events = [
            message(self.publishers[n % len(KEYS)], KEYS[n % len(KEYS) :][:1]) for n in range(BATCH)
        ]
        answer = self._node.send(self._project, {"events": events})
        assert answer.status == 201, answer
        codes = [item["wasmResults"][0]["code"] for item in answer.json]
        with self._adding:
            self.codes += codes
        return codes
