"""The speculation of a round, with handlers in Python and threads that tests control."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.actors.project.look_ahead import speculation as module
from fieldbrook.actors.project.look_ahead.policy import SpeculationPolicy
from fieldbrook.actors.project.look_ahead.speculation import Basis, Speculation
from fieldbrook.actors.project.look_ahead.tasks import HostCopies, Step
from fieldbrook.actors.project.look_ahead.threads import LookAheadThreads, Work
from fieldbrook.actors.project.routing import Target
from fieldbrook.actors.wire import WireEvent
from fieldbrook.observability import metrics
from fieldbrook.storage.project import kv
from fieldbrook.wasm.run import Capabilities, EffectRefusedError, Run
from tests.support.python_host import HandlerFailedError, PythonHost

APPLET, STRATEGY = 7, 3
SCOPE = kv.scope(APPLET)
TARGET = Target(STRATEGY, APPLET, 1, "a", "h", started=True)
SECOND = Target(STRATEGY + 1, APPLET, 1, "a", "h", started=True)


class ManualThreads(LookAheadThreads):
    """Threads that work when `work` is called: each call handles one event."""

    awaited = True

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.queue: list[Work] = []

    def put(self, work: Work) -> None:
        self.queue.append(work)

    def work(self, times: int = 1) -> None:
        for _ in range(times):
            if self.queue:
                self.queue.pop(0).help()


def handler(run: Run) -> int:
    """Carry out the operations in the payload, and return a number that depends on all reads.

    An operation has two bytes: the kind and the key. `+` adds one to the value, `?` reads it, `=`
    sets it to a value that depends on all reads so far, `!` adds one and fails, `$` calls a chain.
    """

    def value(key: bytes) -> int:
        found = run.writes.get(key)
        return int((run.read(key) if found is None else found) or b"0")

    seen = 0
    for at in range(0, len(run.payload), 2):
        what, key = run.payload[at : at + 1], run.payload[at + 1 : at + 2]
        if what != b"=":
            seen = 31 * seen + value(key)
        if what in b"+!":
            run.writes[key] = b"%d" % (value(key) + 1)
        elif what == b"=":
            run.writes[key] = b"%d" % (seen % 1000)
        elif what == b"$":
            with contextlib.suppress(EffectRefusedError):
                run.capabilities.call_contract(run, 1, b"")
        if what == b"!":
            raise HandlerFailedError(f"failed at {seen}")
    run.logs.append((4, "log", run.payload.decode()))
    return seen % 10_000


class Round:
    """A round of a project's thread: handles events in order, and commits or drops their writes."""

    def __init__(
        self,
        events: Sequence[WireEvent],
        threads: int = 1,
        targets: Sequence[Target] = (TARGET,),
        mean_s: float = 0.0,
    ) -> None:
        self.threads = ManualThreads(threads)
        self.policy = SpeculationPolicy(heavy_s=0, pause_s=0)
        self.policy.mean_s = mean_s
        self.committed: dict[bytes, bytes] = {}
        self.batch: dict[bytes, bytes] = {}
        self.host = PythonHost({"h": handler})
        self.own: set[int] = set()
        self.own_runs = 0
        self.under_way: list[int] = []
        self.events, self.targets = events, targets
        hosts = HostCopies(self.host)
        steps = [Step(t.strategy_id, APPLET, "h", SCOPE, hosts) for t in targets]
        basis = Basis(
            *(lambda key: self.committed.get(key), {}, Capabilities(), {APPLET: SCOPE}, self.own),
            self.under_way.append,
        )
        self.speculation = Speculation(
            *(self.threads, self.policy, basis, events),
            lambda event: steps if event[5] == 0 else (),
        )

    def read(self, key: bytes) -> bytes | None:
        stored = kv.stored_key(SCOPE, key)
        return self.batch.get(stored, self.committed.get(stored))

    def take(self, index: int) -> list[tuple[int, str, list[Any]]]:
        """Handle an event like `HandlerRunner`."""
        outcomes = []
        event = self.events[index]
        for target in self.targets:
            run = Run(event[3], event[0], {}, self.read)
            done = self.speculation.result(event, target, run)
            if done is None:
                self.own_runs += 1
                done = self.host.run("h", run)
                self.speculation.add_own_run(run, 0.0, failed=bool(done[1]))
            if not done[1]:
                for key, value in run.writes.items():
                    self.batch[kv.stored_key(SCOPE, key)] = value
            outcomes.append((*done, run.logs))
        return outcomes

    def end_batch(self, *, kept: bool) -> None:
        if kept:
            self.committed |= self.batch
        self.batch = {}
        self.speculation.settle()

    def replace_module(self) -> None:
        self.host = PythonHost({"h": lambda run: handler(run) + 100_000})
        self.speculation.forget()


def event(publisher: int, payload: bytes, kind: int = 0) -> WireEvent:
    return "DEFAULT", publisher, "", payload, 1, kind, ""


def in_order(
    events: Sequence[WireEvent], ends: dict[int, bool], skipped: set[int], change: int
) -> tuple[list[Any], dict[bytes, bytes]]:
    """Return the results of the events in one thread."""
    alone = Round(events, 0)
    alone.speculation.forget()
    outcomes = []
    for index in range(len(events)):
        if index == change:
            alone.replace_module()
        if index not in skipped:
            outcomes.append(alone.take(index))
        if index in ends:
            alone.end_batch(kept=ends[index])
    return outcomes, alone.committed | alone.batch


OPERATIONS = st.builds(
    lambda what, key: what + key,
    st.sampled_from([b"+", b"+", b"+", b"?", b"?", b"=", b"!", b"$"]),
    st.sampled_from([b"a", b"b", b"c", b"d", b"e"]),
)
EVENTS = st.lists(
    st.builds(
        event,
        st.integers(0, 4),
        st.lists(OPERATIONS, max_size=3).map(b"".join),
        st.sampled_from([0, 0, 0, 0, 1]),
    ),
    min_size=2,
    max_size=40,
)


@given(
    EVENTS,
    st.integers(1, 3),
    st.lists(st.integers(0, 6), max_size=40),
    st.dictionaries(st.integers(0, 39), st.booleans(), max_size=8),
    st.sets(st.integers(0, 39), max_size=5),
    st.integers(0, 80),
    st.sampled_from([0.0, 0.005, 0.1]),
)
def test_any_order_of_work_gives_the_results_of_one_thread(
    events: list[WireEvent],
    threads: int,
    work: list[int],
    ends: dict[int, bool],
    skipped: set[int],
    change: int,
    mean_s: float,
) -> None:
    """Batches are committed or dropped at `ends`, `skipped` events are not run, and another module
    takes over at `change`."""
    around = Round(events, threads, mean_s=mean_s)
    outcomes = []
    for index in range(len(events)):
        around.threads.work(work[index] if index < len(work) else 1)
        if index == change:
            around.replace_module()
        if index not in skipped:
            outcomes.append(around.take(index))
        if index in ends:
            around.end_batch(kept=ends[index])
    around.threads.work(100)
    assert (outcomes, around.committed | around.batch) == in_order(*(events, ends, skipped, change))


def test_threads_run_everything_but_the_first_event_and_the_next_one() -> None:
    around = Round([event(n, b"+a" if n == 0 else b"+%c" % (49 + n)) for n in range(10)])
    around.threads.work(20)
    results = [around.take(index) for index in range(10)]
    assert around.own_runs == 1  # an idle thread begins the next event, too
    assert [r[0][0] for r in results] == [0] * 10
    assert around.speculation.seconds > 0


def test_events_that_run_in_other_threads_are_counted_while_they_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = Round([event(n, b"+%c" % (48 + n)) for n in range(4)])
    seen: list[int] = []

    def look(_host: PythonHost, _name: str, _run: Run) -> tuple[int, str]:
        seen.append(sum(around.under_way))
        return 0, ""

    monkeypatch.setattr(PythonHost, "run", look)
    around.threads.work(20)
    assert seen == [1, 1, 1]
    assert sum(around.under_way) == 0


def test_the_next_event_is_left_to_the_projects_thread_while_there_are_others() -> None:
    around = Round([event(n, b"+%c" % (48 + n)) for n in range(4)])
    around.threads.work(2)
    assert list(around.speculation._begun) == [2, 3]
    around.take(0)
    around.take(1)
    assert around.own_runs == 2
    around.take(2)
    around.take(3)
    assert around.own_runs == 2


def test_events_of_one_publisher_run_one_after_another_and_see_each_other() -> None:
    events = [event(1, b"?z"), *(event(2, b"+a") for _ in range(5)), event(1, b"+b")]
    around = Round(events, threads=2)
    around.threads.work(20)
    kept = metrics.here.row[metrics.LOOK_AHEAD_RUNS["kept"]]
    assert [around.take(n)[0][0] for n in range(6)] == [0, 0, 1, 2, 3, 4]
    assert metrics.here.row[metrics.LOOK_AHEAD_RUNS["kept"]] == kept + 5


def test_an_event_of_the_publisher_whose_event_runs_now_is_not_begun() -> None:
    around = Round([event(1, b"+a"), event(2, b"+b"), event(1, b"+a"), event(1, b"+a")])
    around.threads.work(20)
    assert list(around.speculation._begun) == [1]


def test_what_is_adopted_and_committed_is_seen_by_later_runs() -> None:
    events = [event(n % 3, b"+%c" % (48 + n % 3)) for n in range(12)]
    around = Round(events)
    for index in range(12):
        assert around.take(index)[0][0] == index // 3
        around.threads.work(3)
        around.end_batch(kept=True)
    assert around.own_runs < 12


@pytest.mark.parametrize(
    ("events", "taken", "own_runs"),
    [
        ([(1, b"?z"), (2, b"!a"), (2, b"+a")], 0, 1),
        ([(1, b"?z"), (2, b"?a"), (3, b"+a")], 0, 1),
        ([(1, b"+a"), (2, b"+b"), (3, b"+c"), (1, b"+a")], 2, 2),
        ([(1, b"!a"), (2, b"+b"), (3, b"+c"), (1, b"+a")], 2, 2),
    ],
    ids=["a run that failed", "a later event", "the project's own run", "its own that failed"],
)
def test_a_run_ahead_sees_of_others_what_it_will_see_in_its_turn(
    events: list[tuple[int, bytes]], taken: int, own_runs: int
) -> None:
    around = Round([event(*one) for one in events])
    for index in range(taken):
        around.take(index)
    around.threads.work(20)
    for index in range(taken, len(events)):
        around.take(index)
    assert around.own_runs == own_runs


def test_handlers_of_one_event_see_each_other() -> None:
    around = Round([event(n, b"+%c" % (48 + n)) for n in range(4)], targets=(TARGET, SECOND))
    around.threads.work(20)
    assert [[code for code, _, _ in around.take(n)] for n in range(4)] == [[0, 1]] * 4
    assert around.own_runs == 2


def test_results_that_wait_for_their_turn_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_BYTES", 3)
    around = Round([event(n, b"+%c" % (48 + n)) for n in range(40)])
    around.threads.work(100)
    assert len(around.speculation._begun) <= 3
    for index in range(40):
        assert around.take(index)[0][0] == 0
        around.threads.work(100)
    assert around.own_runs < 40
    assert around.speculation._held_bytes == 0


def test_a_run_that_takes_too_long_is_made_again_and_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_WAIT_S", 0.0)
    around = Round([event(n, b"+%c" % (48 + n)) for n in range(3)])
    turns: list[Callable[[], object]] = [lambda: [around.take(0), around.take(1), around.take(2)]]
    original = around.host.run
    late = metrics.here.row[metrics.LOOK_AHEAD_RUNS["late"]]

    def slow(name: str, run: Run) -> tuple[int, str]:
        if turns:  # meanwhile the project's thread handles all events
            turns.pop()()
        return original(name, run)

    monkeypatch.setattr(PythonHost, "run", lambda _host, name, run: slow(name, run))
    around.threads.work()
    assert around.own_runs == 3
    assert metrics.here.row[metrics.LOOK_AHEAD_RUNS["late"]] == late + 1
    assert around.batch == {kv.stored_key(SCOPE, b"%c" % (48 + n)): b"1" for n in range(3)}


def test_an_applet_that_cannot_be_run_ahead_is_told_and_left_to_the_project() -> None:
    around = Round([event(n, b"$%c" % (48 + n)) for n in range(4)])
    around.threads.work(20)
    for index in range(4):
        around.take(index)
    assert around.own_runs == 4
    assert around.own == {APPLET}


def test_nothing_is_begun_after_a_change() -> None:
    around = Round([event(n, b"+%c" % (48 + n)) for n in range(10)])
    around.threads.work(2)
    around.speculation.forget()
    around.threads.work(20)
    assert around.threads.queue == []
    assert around.speculation._begun == {}
    for index in range(10):
        around.take(index)
    assert around.own_runs == 10
