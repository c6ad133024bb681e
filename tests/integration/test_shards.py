"""Shards: handlers in several processes have the same results as in one process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fieldbrook.actors.project.shards import IDLE_S
from fieldbrook.actors.wire import NAMED, NODE_COMMAND, REPEATED, TRACE, WireEvent, pack
from fieldbrook.core.model import PER_BATCH, PER_INSTANCE
from fieldbrook.observability import health
from fieldbrook.storage.project.history.search import EventFilter
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.registry.service import Module
from fieldbrook.wasm.engine.compile import compile_in_child
from tests.support.nodes import MODULES, alive, part_of, until
from tests.support.projects import CHAIN, COUNTER, LARGE, LIMITS, SEND, TRAP, Project

OTHER = b"""(module (memory (export "memory") 1)
  (func (export "start") (param i32) (result i32) (i32.const 77)))"""


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
    assert health.SHARDS_DIE in project.executor.health
    project.wait_for_shards(2)
    project.executor.on_quiet()
    assert health.SHARDS_DIE in project.executor.health  # they have not lasted yet
    monkeypatch.setattr("fieldbrook.actors.project.shards.STEADY_S", 0)
    project.round([event(1000 + n, b"c%d" % (n % 6), n % 6) for n in range(60)])
    assert health.SHARDS_DIE not in project.executor.health
    assert "died: the project's process runs its events" in caplog.text


def test_shards_that_died_are_no_condition_once_nobody_needs_any(
    make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make(2)
    _with_a_dead_shard(project)
    assert health.SHARDS_DIE in project.executor.health
    monkeypatch.setattr("fieldbrook.actors.project.shards.IDLE_S", 0)
    project.executor.on_quiet()
    assert health.SHARDS_DIE not in project.executor.health
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
    project.executor.on_quiet()
    assert shards.pids == pids
    clock.now += 1
    project.executor.on_quiet()
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


def test_traced_events_are_run_by_the_project_between_those_of_the_shards(make: Make) -> None:
    project = make(2)
    order = [5, 60.0, "", 1_003, "p", ""]
    project.round([(TRACE, NODE_COMMAND, "", pack(order), 1, 0, "")])
    events = [event(n, b"c%d" % (n % 6), n % 6) for n in range(180)]
    assert [r[0][0] for r in codes(project.round(events))] == [n // 6 + 1 for n in range(180)]
    assert project.shards is not None
    assert project.shards.kept > 60
    project.store.checkpoint()
    reader = ProjectStoreReader.__new__(ProjectStoreReader)
    reader._environment = project.store._stored.environment
    page = reader.find_events(EventFilter(publisher_id=1_003), 0, 100)
    traces = [reader.trace_at(row.place) for row in page.rows[::-1]]
    calls = [[call.function for call in trace.calls] for trace in traces[:5] if trace]
    assert calls == [["ws_log", "ws_get_db", "ws_set_db"]] * 5
    assert reader.trace_count() == 5


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
    project.executor.on_quiet()
    assert shards.pids == pids
    monkeypatch.setattr("fieldbrook.actors.project.shards.IDLE_S", 0)
    project.executor.on_quiet()
    assert shards.pids == []
    assert not any(alive(pid) for pid in pids)
