"""Handlers in several processes: what comes out is what one process makes of it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fieldbrook.actors.project.executor import ProjectWorker
from fieldbrook.actors.project.pool import InstancePool
from fieldbrook.actors.project.shard import Setup
from fieldbrook.actors.project.shards import IDLE_S, Shards
from fieldbrook.actors.project.worth import Worth
from fieldbrook.actors.wire import NAMED, REPEATED, FrameReader, Peer, WireEvent, pack, unpack
from fieldbrook.core import clock
from fieldbrook.core.model import ADMIN, PER_BATCH, PER_INSTANCE
from fieldbrook.observability import health
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.registry.service import Module, RegistryWriter
from fieldbrook.wasm.engine.compile import compile_in_child
from fieldbrook.wasm.limits import Limits
from tests.integration.nodes import MODULES, alive, part_of, until

MAP = 64 << 20
LIMITS = Limits(deadline_ms=1_000)
COUNTER, TRAP, SEND, SPIN, CHAIN, LARGE = b"c", b"t", b"s", b"e", b"x", b"l"

# `start` looks at the first byte of its payload: it counts under the second one (u64,
# little-endian) and returns the count; traps after that; publishes the payload; never
# ends; returns the code of a transaction; or adds 100 bytes to what lies under the key. All
# log the payload. `quick` returns 5.
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
    (local $what i32) (local $key i32)
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
    (if (i32.eq (local.get $what) (i32.const 0x65))
      (then (loop $ever (br $ever))))
    (if (i32.eq (local.get $what) (i32.const 0x78))
      (then (return (call $tx (i32.const 1) (local.get $at) (local.get $size)
        (i32.const 16) (i32.const 20)))))
    (call $grow (local.get $key)))
  (func (export "quick") (param $rid i32) (result i32) (i32.const 5)))
"""
OTHER = b"""(module (memory (export "memory") 1)
  (func (export "start") (param i32) (result i32) (i32.const 77)))"""


class Project:
    """One project's worker with its store, and shards if there are to be any."""

    def __init__(self, folder: Path, modules: Path, shards: int, **applet: Any) -> None:
        self.registry = RegistryWriter(folder / "registry", MAP, clock.now_ms, b"k" * 32)
        account = self.registry.create_account("ada", "h", ADMIN)
        project = self.registry.create_project(account.account_id, "p")
        self.modules, self.account_id = modules, account.account_id
        self.project_id = project.project_id
        made = self.deploy("a", MODULE, [("DEFAULT", "start"), ("TWO", "start")], **applet)
        self.applet_id = made.applet.applet_id
        self.registry.create_strategy(self.project_id, self.applet_id, "TWO", "quick")
        self.store = ProjectStore(folder / "store", MAP)
        self.pool = InstancePool(modules, LIMITS)
        setup = Setup(
            store=str(self.store.path),
            modules=str(modules),
            registry=str(folder / "registry"),
            api_hosts=(),
            limits=LIMITS,
            log_level="WARNING",
            log_format="text",
        )
        self.shards = (
            Shards(shards, setup, self.store, Worth(heavy_s=0, pause_s=0)) if shards else None
        )
        self.worker = ProjectWorker(
            *(self.project_id, self.registry.reader(), self.store, self.pool),
            shards=self.shards,
        )
        self.worker.refresh()
        if self.shards is not None:
            self.wait_for_shards(shards)
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket, self._peer, self._reader = ours, Peer(theirs), FrameReader()

    def wait_for_shards(self, count: int) -> None:
        assert self.shards is not None

        shards = self.shards

        def all_ready() -> bool:
            shards.start(time.monotonic())
            return len(shards.ready) == count

        until(all_ready, "shards are ready")

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
        """Results of the events of one round, in order."""
        self.worker.on_round([(self._peer, pack(list(events))) for events in frames])
        results: list[Any] = []
        while len(results) < sum(len(events) for events in frames):
            for answer in self._reader.feed(self._socket.recv(1 << 20)):
                results.extend(unpack(answer))
        return results

    def kept(self) -> Any:
        """What is stored: pairs, what was sent, logs, dead letters, all without their times."""
        reader = ProjectStoreReader.__new__(ProjectStoreReader)
        store = self.store
        store._rows_since = 0.0
        store.flush_logs()
        reader._environment, reader._kv = store._environment, store._kv
        reader._logs = store._tables.logs
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
        if self.shards is not None:
            self.shards.close()
        self._peer.close()
        self._socket.close()
        self.pool.close()
        self.store.close()
        self.registry.close()


def event(
    number: int, payload: bytes, publisher: int = 0, event_type: str = "DEFAULT", kind: int = 0
) -> WireEvent:
    return event_type, 1_000 + publisher, f"e{number}", payload, 1, kind, ""


def codes(results: Sequence[Any]) -> list[Any]:
    """Codes and errors of results, stored ones too, without the numbers of instances."""
    bare = [result[1] if result[:1] == (REPEATED,) else result for result in results]
    return [[handler[1:] for handler in result] for result in bare]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("modules")


Make = Callable[..., Project]


@pytest.fixture
def make(tmp_path: Path, modules: Path) -> Iterator[Make]:
    made: list[Project] = []

    def _make(shards: int = 2, **applet: Any) -> Project:
        made.append(Project(tmp_path / str(len(made)), modules, shards, **applet))
        return made[-1]

    yield _make
    for project in made:
        project.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, modules: Path) -> Iterator[list[Project]]:
    """The same project without shards and with three."""
    both = [Project(tmp_path_factory.mktemp(f"s{n}"), modules, n) for n in (0, 3)]
    yield both
    for project in both:
        project.close()


KINDS = st.sampled_from([COUNTER, COUNTER, COUNTER, TRAP, SEND, CHAIN, LARGE])
EVENTS = st.lists(
    st.builds(
        event,
        st.integers(0, 1 << 40),
        st.builds(lambda kind, key: kind + b"%d" % key, KINDS, st.integers(0, 5)),
        st.integers(0, 6),
        st.sampled_from(["DEFAULT", "DEFAULT", "TWO"]),
        st.sampled_from([0, 0, NAMED]),
    ),
    min_size=2,
    max_size=120,
)


@given(EVENTS, st.integers(0, 120), st.booleans())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@example([event(n, b"c1", n % 7) for n in range(100)], 50, False)
@example([event(n % 5, b"c%d" % (n % 5), n % 5, kind=NAMED) for n in range(60)], 30, True)
def test_random_events_come_out_as_from_one_process(
    pair: list[Project], events: list[WireEvent], cut: int, of_their_own: bool
) -> None:
    if of_their_own:  # a key for each publisher: nothing conflicts
        events = [(t, p, i, d[:1] + b"%d" % (p % 10), r, k, n) for t, p, i, d, r, k, n in events]
    outcomes = [codes(project.round(events[:cut], events[cut:])) for project in pair]
    assert outcomes[0] == outcomes[1]
    assert pair[0].kept() == pair[1].kept()


def test_shards_have_run_what_the_project_answers(make: Make) -> None:
    project = make(2)
    assert project.shards is not None
    events = [event(n, b"c%d" % (n % 6), n % 6) for n in range(180)]
    assert [r[0][0] for r in codes(project.round(events))] == [n // 6 + 1 for n in range(180)]
    assert project.shards.kept > 60
    assert project.shards.dropped == 0


def test_what_conflicts_is_run_again_and_counts_once(make: Make) -> None:
    project = make(2)
    assert project.shards is not None
    events = [event(n, b"c1", n) for n in range(180)]
    assert [r[0][0] for r in codes(project.round(events))] == list(range(1, 181))
    assert project.shards.dropped > 0


def test_a_value_that_is_changed_from_outside_the_round_is_seen(make: Make) -> None:
    project, alone = make(2), make(0)
    for length in (60, 2, 90):
        events = [event(n, b"l%d" % (n % 3), n % 3) for n in range(length)]
        events.append(event(length, b"c0"))
        assert codes(project.round(events)) == codes(alone.round(events))
    assert project.kept() == alone.kept()


def test_a_round_goes_on_without_the_shard_that_was_killed_in_it(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    project, alone = make(2), make(0)
    shards = project.shards
    assert shards is not None
    killed = 0
    for number in range(6):
        events = [event(1000 * number + n, b"c%d" % (n % 6), n % 6) for n in range(120)]
        if number % 2:
            os.kill(shards.pids[0], signal.SIGKILL)
            killed += 1
        assert codes(project.round(events)) == codes(alone.round(events))
        project.wait_for_shards(2)
    assert caplog.text.count("died: the project's process runs its events") == killed
    assert project.kept() == alone.kept()


def test_a_handler_that_never_ends_is_ended_in_a_shard_as_in_the_project(make: Make) -> None:
    project, alone = make(2), make(0)
    events = [event(n, b"%s%d" % (b"e" if n == 7 else b"c", n % 6), n % 6) for n in range(20)]
    outcome = codes(project.round(events))
    assert outcome[7][0][1].startswith("deadline")
    assert outcome == codes(alone.round(events))
    assert project.kept() == alone.kept()


def test_a_shard_that_hangs_is_killed_and_its_events_are_run_by_the_project(
    make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make(2)
    shards = project.shards
    assert shards is not None
    pids = shards.pids
    monkeypatch.setattr(shards, "_limit_s", 0.2)
    os.kill(pids[0], signal.SIGSTOP)
    events = [event(n, b"c%d" % (n % 6), n % 6) for n in range(60)]
    assert [r[0][0] for r in codes(project.round(events))] == [n // 6 + 1 for n in range(60)]
    assert pids[0] not in shards.pids
    assert "gave no answer for 0.2 s" in caplog.text


def _with_a_dead_shard(project: Project) -> None:
    """A round in which one shard of a project dies."""
    assert project.shards is not None
    pid = project.shards.pids[0]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "the shard is gone")
    project.round([event(n, b"c%d" % (n % 6), n % 6) for n in range(60)])


def test_shards_that_die_are_a_condition_of_the_project_until_others_last(
    make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make(2)
    _with_a_dead_shard(project)
    assert health.SHARDS_DIE in project.worker.health
    project.wait_for_shards(2)
    project.worker.on_quiet()
    assert health.SHARDS_DIE in project.worker.health  # they have not lasted yet
    monkeypatch.setattr("fieldbrook.actors.project.shards.STEADY_S", 0)
    project.round([event(1000 + n, b"c%d" % (n % 6), n % 6) for n in range(60)])
    assert health.SHARDS_DIE not in project.worker.health
    assert "died: the project's process runs its events" in caplog.text


def test_shards_that_died_are_no_condition_once_nobody_needs_any(
    make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make(2)
    _with_a_dead_shard(project)
    assert health.SHARDS_DIE in project.worker.health
    monkeypatch.setattr("fieldbrook.actors.project.shards.IDLE_S", 0)
    project.worker.on_quiet()
    assert health.SHARDS_DIE not in project.worker.health
    assert caplog.records


class Clock:
    """Goes when a test says so."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now


def test_shards_that_take_long_to_start_are_waited_for_by_who_needs_them(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make(2)
    shards = project.shards
    assert shards is not None
    clock = Clock()
    monkeypatch.setattr("fieldbrook.actors.project.shards.time", clock)
    shards.close()
    clock.now += IDLE_S + 1  # so long has nobody needed any
    project.round([event(n, b"c%d" % (n % 6), n % 6) for n in range(60)])
    pids = shards.pids
    assert len(pids) == 2
    clock.now += IDLE_S - 1
    project.worker.on_quiet()
    assert shards.pids == pids
    clock.now += 1
    project.worker.on_quiet()
    assert shards.pids == []


def test_a_module_that_takes_over_counts_from_its_round_on(make: Make) -> None:
    project = make(2)
    events = [event(n, b"c%d" % (n % 6), n % 6) for n in range(60)]
    assert codes(project.round(events))[-1] == [(10, "")]
    source = project.modules / "other"
    source.write_bytes(OTHER)
    found = compile_in_child(source, project.modules, LIMITS)
    module = Module("o.wasm", found.sha256, found.md5, found.size, list(found.handlers))
    project.registry.update_applet(project.applet_id, module=module, strategies=[("TWO", "start")])
    events = [event(100 + n, b"c", n % 6, "TWO") for n in range(60)]
    assert codes(project.round(events)) == [[(77, "")]] * 60
    assert project.shards is not None
    assert project.shards.kept > 30


@pytest.mark.parametrize("isolation", [PER_BATCH, PER_INSTANCE])
def test_applets_that_share_instances_run_in_the_project(make: Make, isolation: str) -> None:
    project = make(2, isolation=isolation)
    events = [event(n, b"c%d" % (n % 6), n % 6) for n in range(60)]
    assert codes(project.round(events))[-1] == [(10, "")]
    assert project.shards is not None
    assert project.shards.kept == 0


def test_an_applet_that_asks_for_a_chain_is_left_to_the_project(make: Make) -> None:
    project, alone = make(2), make(0)
    for start in (0, 100):
        events = [event(start + n, b"x%d" % (n % 6), n % 6) for n in range(60)]
        assert codes(project.round(events)) == codes(alone.round(events))
    assert project.kept() == alone.kept()
    assert project.shards is not None
    assert project.shards.kept == 0


def test_an_applet_that_uses_sql_is_left_to_the_project(make: Make) -> None:
    project, alone = make(2), make(0)
    for one in (project, alone):
        one.deploy("sql", (MODULES / "sql.wat").read_bytes(), [("SQL", "get")])
    events = [event(n, b"{}", n % 6, "SQL") for n in range(60)]
    assert codes(project.round(events)) == codes(alone.round(events))
    assert project.shards is not None
    assert project.shards.kept == 0


def test_what_a_handler_sends_leaves_from_a_shard_as_from_the_project(make: Make) -> None:
    project, alone = make(2), make(0)
    events = [event(n, b"s%d" % n, n % 6) for n in range(60)]
    assert codes(project.round(events)) == codes(alone.round(events))
    assert project.kept() == alone.kept()
    assert len(project.kept()[1]) == 60
    assert project.shards is not None
    assert project.shards.kept > 20


def test_shards_end_when_nobody_needs_them_and_with_their_project(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make(2)
    shards = project.shards
    assert shards is not None
    pids = shards.pids
    assert [part_of(pid) for pid in pids] == ["fb-shard", "fb-shard"]
    project.worker.on_quiet()
    assert shards.pids == pids
    monkeypatch.setattr("fieldbrook.actors.project.shards.IDLE_S", 0)
    project.worker.on_quiet()
    assert shards.pids == []
    assert not any(alive(pid) for pid in pids)
