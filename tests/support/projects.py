"""One project's executor with its store and registry, without a node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fieldbrook.actors.project.configuration import read_configuration
from fieldbrook.actors.project.execution.executor import ProjectExecutor
from fieldbrook.actors.project.look_ahead.look_ahead import LookAhead
from fieldbrook.actors.project.look_ahead.policy import SpeculationPolicy
from fieldbrook.actors.project.look_ahead.threads import LookAheadThreads
from fieldbrook.actors.project.pool import InstancePool
from fieldbrook.actors.project.topics import HandlerTopics
from fieldbrook.actors.wire import WireEvent, pack, unpack
from fieldbrook.core import clock
from fieldbrook.core.model import ADMIN
from fieldbrook.storage.journal.memory import MemoryJournal
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.registry.service import RegistryWriter
from fieldbrook.wasm.engine.compile import compile_in_child
from fieldbrook.wasm.engine.engine import make_engine
from fieldbrook.wasm.limits import Limits
from tests.support.stores import reader_of

MAP = 64 << 20
LIMITS = Limits(deadline_ms=1_000)
SLICE_S = 0.02
COUNTER, TRAP, SEND, SPIN, CHAIN, LARGE = b"c", b"t", b"s", b"e", b"x", b"l"

# The first byte of the payload selects the action of `start`: it counts under the second byte (u64,
# little-endian) and returns the count; counts and then traps; publishes the payload; returns -2;
# never ends; returns the code of a transaction; or adds 100 bytes to the value under the key. It
# always logs the payload. `quick` returns 5.
MODULE = b"""
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_log" (func $log (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_mqtt_msg" (func $send (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_tx" (func $tx (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 4)
  (data (i32.const 64) "out/readings")
  (global $heap (mut i32) (i32.const 4096))
  (func (export "alloc") (param $size i32) (result i32) (local $at i32)
    (local.set $at (global.get $heap))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (local.get $at))
  (func $count (param $key i32) (result i32)
    (i64.store (i32.const 128) (i64.const 0))
    (if (i32.eqz (call $get_db (local.get $key) (i32.const 1) (i32.const 16) (i32.const 20)))
      (then (i64.store (i32.const 128) (i64.load (i32.load (i32.const 16))))))
    (i64.store (i32.const 128) (i64.add (i64.load (i32.const 128)) (i64.const 1)))
    (drop (call $set_db (local.get $key) (i32.const 1) (i32.const 128) (i32.const 8)))
    (i32.load (i32.const 128)))
  (func $grow (param $key i32) (result i32)
    (i32.store (i32.const 20) (i32.const 0))
    (drop (call $get_db (local.get $key) (i32.const 1) (i32.const 16) (i32.const 20)))
    (call $set_db (local.get $key) (i32.const 1)
      (i32.load (i32.const 16)) (i32.add (i32.load (i32.const 20)) (i32.const 100))))
  (func (export "start") (param $rid i32) (result i32) (local $at i32) (local $size i32)
    (local $what i32) (local $key i32) (local $left i32)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4)))
    (local.set $at (i32.load (i32.const 0)))
    (local.set $size (i32.load (i32.const 4)))
    (local.set $what (i32.load8_u (local.get $at)))
    (local.set $key (i32.add (local.get $at) (i32.const 1)))
    (drop (call $log (i32.const 4) (local.get $at) (local.get $size)))
    (if (i32.eq (local.get $what) (i32.const 0x63)) (then (return (call $count (local.get $key)))))
    (if (i32.eq (local.get $what) (i32.const 0x74))
      (then (drop (call $count (local.get $key))) (unreachable)))
    (if (i32.eq (local.get $what) (i32.const 0x73))
      (then (return (call $send (i32.const 64) (i32.const 12) (local.get $at) (local.get $size)))))
    (if (i32.eq (local.get $what) (i32.const 0x2d)) (then (return (i32.const -2))))
    (if (i32.eq (local.get $what) (i32.const 0x65))
      (then (loop $ever (br $ever))))
    (if (i32.eq (local.get $what) (i32.const 0x78))
      (then (return (call $tx (i32.const 1) (local.get $at) (local.get $size)
        (i32.const 16) (i32.const 20)))))
    (call $grow (local.get $key)))
  (func (export "quick") (param $rid i32) (result i32) (i32.const 5)))
"""


def computing(steps: int) -> bytes:
    """Return the module with an empty loop at the beginning of `start`; 1,000 iterations take about
    0.7 us."""
    loop = b"""(local $left i32)
      (local.set $left (i32.const %d))
      (loop $next
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br_if $next (local.get $left)))"""
    return MODULE.replace(b"(local $left i32)", loop % steps)


class _Collector:
    """Collects the answers of an executor."""

    closed = False

    def __init__(self, results: list[Any]) -> None:
        self._results = results

    def answer(self, value: Any) -> None:
        self._results.extend(unpack(pack(value)))


class Project:
    """One project's executor with its store and journal, and with threads for look-ahead."""

    def __init__(
        self, folder: Path, modules: Path, threads: int, module: bytes = MODULE, **applet: Any
    ) -> None:
        self.registry = RegistryWriter(folder / "registry", MAP, clock.now_ms, b"k" * 32)
        account = self.registry.create_account("ada", "h", ADMIN)
        project = self.registry.create_project(account.account_id, "p")
        self.modules, self.account_id = modules, account.account_id
        self.project_id = project.project_id
        made = self.deploy("a", module, [("DEFAULT", "start"), ("TWO", "start")], **applet)
        self.applet_id = made.applet.applet_id
        self.registry.create_strategy(self.project_id, self.applet_id, "TWO", "quick")
        self.journal = MemoryJournal()
        self.journal.begin()
        self.store = ProjectStore(folder / "store", MAP, journal=self.journal)
        self.pool = InstancePool(modules, LIMITS, make_engine(LIMITS))
        self.threads = LookAheadThreads(threads)
        reader, policy = self.registry.reader(), SpeculationPolicy(heavy_s=0, pause_s=0)
        topics = HandlerTopics(reader, self.project_id)
        look_ahead = LookAhead(self.threads, self.pool, self.store, topics, policy=policy)
        self.executor = ProjectExecutor(
            *(self.project_id, reader, self.store, self.pool), look_ahead=look_ahead
        )
        self.executor.refresh()
        for found in read_configuration(reader, self.project_id).applets.values():
            self.pool.host(found)  # no event runs ahead before its module is loaded

    def deploy(self, name: str, module: bytes, strategies: Any, **more: Any) -> Any:
        source = self.modules / "upload"
        source.write_bytes(module)
        found = compile_in_child(source, self.modules, LIMITS)
        return self.registry.create_applet(
            *(self.project_id, self.account_id, name, "a.wasm", "a.wasm", found.sha256),
            *(found.md5, found.size, list(found.handlers), strategies),
            **more,
        )

    def round(self, *frames: Sequence[WireEvent]) -> list[Any]:
        """Return the results of the events of one round, in order."""
        results: list[Any] = []
        requester = _Collector(results)
        for events in frames:
            self.executor.take(requester, unpack(pack(list(events))))
        while self.executor.has_work:
            self.executor.run(SLICE_S)
            self.journal.sync()
            self.executor.finish()
        return results

    def kept(self) -> Any:
        """Return the stored data without times: pairs, sent entries, logs and dead letters."""
        store = self.store
        store.checkpoint()
        reader = reader_of(store)
        scope = kv.scope(self.applet_id)
        keys = reader.kv_keys(self.applet_id, b"", 1000)
        letters, count = reader.dead_letters(None, 1000)
        return (
            {key: store.read(kv.stored_key(scope, key)) for key in keys},
            [(e.kind, e.target, e.body, e.event_id) for _, e in store.outbox.first(9999, 0)],
            [(r.row.level, r.row.source, r.row.event_id, r.row.text) for r in reader.logs(0, 9999)],
            [(n.letter.event_id, n.letter.reason, n.letter.handler) for n in letters],
            count,
        )

    def close(self) -> None:
        self.threads.close()
        self.executor.close()
        self.store.close()
        self.registry.close()
