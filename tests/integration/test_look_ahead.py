"""Look-ahead: handlers in several threads have the same results as in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fieldbrook.actors.wire import NAMED, NODE_COMMAND, REPEATED, TRACE, WireEvent, pack
from fieldbrook.core.model import PER_BATCH, PER_INSTANCE
from fieldbrook.observability import metrics
from fieldbrook.storage.project.history.search import EventFilter
from fieldbrook.storage.registry.service import Module
from fieldbrook.wasm.engine.compile import compile_in_child
from tests.support.nodes import MODULES, until
from tests.support.projects import CHAIN, COUNTER, LARGE, LIMITS, SEND, TRAP, Project, computing
from tests.support.stores import reader_of

MODULE = computing(100_000)
OTHER = b"""(module (memory (export "memory") 1)
  (func (export "start") (param i32) (result i32) (i32.const 77)))"""


def event(
    number: int, payload: bytes, publisher: int = 0, event_type: str = "DEFAULT", kind: int = 0
) -> WireEvent:
    return event_type, 1_000 + publisher, f"e{number}", payload, 1, kind, ""


def counting(first: int, count: int = 60) -> list[WireEvent]:
    """Return events of six publishers, each of which counts under a key of its own."""
    return [event(first + n, b"c%d" % (n % 6), n % 6) for n in range(count)]


def codes(results: Sequence[Any]) -> list[Any]:
    """Return codes and errors of results, including stored ones, without the numbers of
    instances."""
    bare = [result[1] if result[:1] == (REPEATED,) else result for result in results]
    return [[handler[1:] for handler in result] for result in bare]


def runs(result: str) -> float:
    """Return how many speculative runs had this result."""
    return metrics.here.row[metrics.LOOK_AHEAD_RUNS[result]]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("modules")


Make = Callable[..., Project]


@pytest.fixture
def make(tmp_path: Path, modules: Path) -> Iterator[Make]:
    made: list[Project] = []

    def _make(threads: int = 2, **applet: Any) -> Project:
        made.append(Project(tmp_path / str(len(made)), modules, threads, MODULE, **applet))
        return made[-1]

    yield _make
    for project in made:
        project.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, modules: Path) -> Iterator[list[Project]]:
    """The same project with only its own thread, and with three more threads."""
    both = [Project(tmp_path_factory.mktemp(f"s{n}"), modules, n, MODULE) for n in (0, 3)]
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
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example([event(n, b"c1", n % 7) for n in range(100)], 50, False)
@example([event(n % 5, b"c%d" % (n % 5), n % 5, kind=NAMED) for n in range(60)], 30, True)
def test_random_events_come_out_as_from_one_thread(
    pair: list[Project], events: list[WireEvent], cut: int, of_their_own: bool
) -> None:
    if of_their_own:  # a key for each publisher: nothing conflicts
        events = [(t, p, i, d[:1] + b"%d" % (p % 10), r, k, n) for t, p, i, d, r, k, n in events]
    outcomes = [codes(project.round(events[:cut], events[cut:])) for project in pair]
    assert outcomes[0] == outcomes[1]
    assert pair[0].kept() == pair[1].kept()


def test_other_threads_run_a_part_of_what_the_project_answers(make: Make) -> None:
    project, kept, first = make(2), runs("kept"), 0

    def round_with_help() -> bool:
        nonlocal first
        results = codes(project.round(counting(first, 180)))
        assert [r[0][0] for r in results] == [(first + n) // 6 + 1 for n in range(180)]
        first += 180
        return runs("kept") > kept + 60

    until(round_with_help, "others have run 60 events")


def test_what_conflicts_is_run_again_and_counts_once(make: Make) -> None:
    project, dropped, first = make(2), runs("dropped"), 0

    def round_with_conflicts() -> bool:
        nonlocal first
        events = [event(first + n, b"c1", n) for n in range(180)]
        results = codes(project.round(events))
        assert [r[0][0] for r in results] == list(range(first + 1, first + 181))
        first += 180
        return runs("dropped") > dropped

    until(round_with_conflicts, "a run that read what changed")


def test_a_value_that_is_changed_from_outside_the_round_is_seen(make: Make) -> None:
    project, alone = make(2), make(0)
    for length in (60, 2, 90):
        events = [event(n, b"l%d" % (n % 3), n % 3) for n in range(length)]
        events.append(event(length, b"c0"))
        assert codes(project.round(events)) == codes(alone.round(events))
    assert project.kept() == alone.kept()


def test_a_handler_that_never_ends_is_ended_as_in_one_thread(make: Make) -> None:
    project, alone = make(2), make(0)
    events = [event(n, b"%s%d" % (b"e" if n == 7 else b"c", n % 6), n % 6) for n in range(20)]
    outcome = codes(project.round(events))
    assert outcome[7][0][1].startswith("deadline")
    assert outcome == codes(alone.round(events))
    assert project.kept() == alone.kept()


def test_a_module_that_takes_over_counts_from_its_round_on(make: Make) -> None:
    project = make(2)
    assert codes(project.round(counting(0)))[-1] == [(10, "")]
    source = project.modules / "other"
    source.write_bytes(OTHER)
    found = compile_in_child(source, project.modules, LIMITS)
    module = Module("o.wasm", found.sha256, found.md5, found.size, list(found.handlers))
    project.registry.update_applet(project.applet_id, module=module, strategies=[("TWO", "start")])
    for first in (100, 200):
        events = [event(first + n, b"c", n % 6, "TWO") for n in range(60)]
        assert codes(project.round(events)) == [[(77, "")]] * 60


@pytest.mark.parametrize("isolation", [PER_BATCH, PER_INSTANCE])
def test_applets_that_share_instances_are_not_run_ahead(make: Make, isolation: str) -> None:
    project, before = make(2, isolation=isolation), (runs("kept"), runs("dropped"))
    assert codes(project.round(counting(0)))[-1] == [(10, "")]
    assert (runs("kept"), runs("dropped")) == before


def test_traced_events_are_not_run_ahead_and_others_are_between_them(make: Make) -> None:
    project = make(2)
    order = [5, 60.0, "", 1_003, "p", ""]
    project.round([(TRACE, NODE_COMMAND, "", pack(order), 1, 0, "")])
    results = codes(project.round(counting(0, 180)))
    assert [r[0][0] for r in results] == [n // 6 + 1 for n in range(180)]
    project.store.checkpoint()
    reader = reader_of(project.store)
    page = reader.find_events(EventFilter(publisher_id=1_003), 0, 100)
    traces = [reader.trace_at(row.place) for row in page.rows[::-1]]
    calls = [[call.function for call in trace.calls] for trace in traces[:5] if trace]
    assert calls == [["ws_log", "ws_get_db", "ws_set_db"]] * 5
    assert reader.trace_count() == 5


def test_an_applet_that_asks_for_a_chain_waits_for_its_turn(make: Make) -> None:
    project, alone, kept = make(2), make(0), runs("kept")
    for start in (0, 100):
        events = [event(start + n, b"x%d" % (n % 6), n % 6) for n in range(60)]
        assert codes(project.round(events)) == codes(alone.round(events))
    assert project.kept() == alone.kept()
    assert runs("kept") == kept


def test_an_applet_that_uses_sql_waits_for_its_turn(make: Make) -> None:
    project, alone, kept = make(2), make(0), runs("kept")
    for one in (project, alone):
        one.deploy("sql", (MODULES / "sql.wat").read_bytes(), [("SQL", "get")])
    for first in (0, 100):
        events = [event(first + n, b"{}", n % 6, "SQL") for n in range(60)]
        assert codes(project.round(events)) == codes(alone.round(events))
    assert runs("kept") == kept


def test_what_a_handler_sends_leaves_once_whichever_thread_ran_it(make: Make) -> None:
    project, alone, kept, first = make(2), make(0), runs("kept"), 0

    def round_with_help() -> bool:
        nonlocal first
        events = [event(first + n, b"s%d" % n, n % 6) for n in range(60)]
        assert codes(project.round(events)) == codes(alone.round(events))
        first += 60
        return runs("kept") > kept + 20

    until(round_with_help, "others have sent 20 messages")
    assert project.kept() == alone.kept()
    assert len(project.kept()[1]) == first
