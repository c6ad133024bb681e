"""Which worker runs which project, and what happens when workers and projects end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fieldbrook.actors import messages as m
from fieldbrook.actors.shared_journal import DISK_FAILED
from fieldbrook.actors.supervisor.child import DOWN, STARTING, UP
from fieldbrook.actors.supervisor.workers import PROVEN_S, SUSPECT_S, SUSPECTS
from fieldbrook.observability import health, metrics
from tests.support.supervisor_tree import Tree

Start = Callable[..., Tree]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start a node with two workers."""

    def start(**settings: object) -> Tree:
        tree = Tree(tmp_path, monkeypatch, **{"workers": 2, **settings})
        tree.boot()
        return tree

    return start


def run_orders(tree: Tree, worker: str) -> list[int]:
    return [order.project_id for order in tree.taken(worker, m.RunProject)]


# ---------------------------------------------------------------- placement


def test_projects_are_spread_over_workers_that_have_nothing_to_do(start: Start) -> None:
    tree = start()
    assert [tree.run(n) for n in range(4)] == ["worker:0", "worker:1", "worker:0", "worker:1"]


def test_a_project_starts_in_the_worker_that_uses_least_processor_time(start: Start) -> None:
    tree = start()
    for _ in range(6):
        tree.cpu_s["worker:0"] = tree.cpu_s.get("worker:0", 0.0) + 1.0
        tree.pass_time(2)
    assert {tree.run(n) for n in range(3)} == {"worker:1"}


def test_projects_that_start_at_once_do_not_all_go_to_the_calm_worker(start: Start) -> None:
    tree = start()
    for _ in range(6):
        tree.cpu_s["worker:0"] = tree.cpu_s.get("worker:0", 0.0) + 0.6
        tree.pass_time(2)
    started = [tree.run(n) for n in range(64)]
    assert 32 < started.count("worker:1") <= 40


def test_no_project_runs_before_the_journals_of_all_workers_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(tmp_path, monkeypatch, workers=2)
    for part in ("registry", "http:0", "worker:0"):
        tree.ready(part)
    tree.activate(1)
    assert run_orders(tree, "worker:0") == []
    tree.ready("worker:1")
    assert run_orders(tree, tree.worker_of(1)) == [1]


def test_gateways_learn_the_socket_of_the_worker_and_lose_it_with_the_project(start: Start) -> None:
    tree = start()
    tree.run(1)
    assert tree.taken("http:0", m.RouteTo) == [m.RouteTo(1, "worker:0.1")]
    tree.receive(m.Idle(1, 1))
    assert tree.taken("worker:0", m.Retire) == [m.Retire(1)]
    assert tree.taken("http:0", m.RouteTo) == [m.RouteTo(1, None)]
    tree.end_project(1)
    assert tree.children["project:1"].state == DOWN


def test_a_project_whose_last_events_sent_something_while_it_retired_starts_again_for_that(
    start: Start,
) -> None:
    tree = start()
    tree.run(1)
    tree.receive(m.Idle(1, 1))
    tree.receive(m.OutboxFilled(1, 1))
    tree.end_project(1)
    tree.ready("project:1")
    tree.receive(m.OutboxFilled(1, 2))
    path = f"{tree.worker_of(1)}.1"
    assert tree.taken("mqtt:0", m.DeliverOutbox) == [m.DeliverOutbox(1, path)]


# ---------------------------------------------------------------- dedicated workers


def test_a_dedicated_project_has_a_worker_of_its_own_which_ends_with_it(start: Start) -> None:
    tree = start()
    tree.receive(m.DedicatedProjects(frozenset({7})))
    tree.activate(7)
    tree.ready("worker:p7")
    tree.ready("project:7")
    assert tree.taken("http:0", m.RouteTo) == [m.RouteTo(7, "worker:p7.1", alone=True)]
    tree.receive(m.Idle(7, 1))
    tree.end_project(7)
    tree.pass_time(3)
    assert tree.stopped == ["worker:p7"]
    tree.die("worker:p7")
    assert "worker:p7" not in tree.children
    assert tree.taken("worker:0", m.RecoverJournal) == [m.RecoverJournal("p7")]
    tree.receive(m.JournalRecovered("p7"))
    tree.activate(7)
    tree.ready("worker:p7")
    assert run_orders(tree, "worker:p7") == [7]


def test_a_running_project_moves_to_a_worker_of_its_own_and_back(start: Start) -> None:
    tree = start()
    assert tree.run(7) == "worker:0"
    tree.receive(m.DedicatedProjects(frozenset({7})))
    assert tree.taken("worker:0", m.Retire) == [m.Retire(7)]
    tree.end_project(7)  # its store has all batches only now
    tree.ready("worker:p7")
    assert run_orders(tree, "worker:p7") == [7]
    tree.ready("project:7")
    tree.receive(m.DedicatedProjects(frozenset()))
    assert tree.taken("worker:p7", m.Retire) == [m.Retire(7)]
    tree.taken("worker:0", m.RunProject)
    tree.end_project(7)
    assert run_orders(tree, tree.worker_of(7)) == [7]
    assert tree.worker_of(7) in ("worker:0", "worker:1")
    tree.pass_time(3)
    assert tree.stopped == ["worker:p7"]


def test_a_project_that_starts_while_its_own_worker_ends_runs_in_the_next_one(
    start: Start,
) -> None:
    tree = start()
    tree.receive(m.DedicatedProjects(frozenset({7})))
    tree.activate(7)
    tree.ready("worker:p7")
    tree.ready("project:7")
    tree.receive(m.Idle(7, 1))
    tree.end_project(7)
    tree.pass_time(3)
    tree.activate(7)
    tree.die("worker:p7")
    tree.ready("worker:p7")
    assert run_orders(tree, "worker:p7") == [7]
    assert health.DOWN not in tree.conditions("project:7")


# ---------------------------------------------------------------- deaths


def test_the_projects_of_a_worker_that_died_wait_for_its_journal(start: Start) -> None:
    tree = start()
    for n in range(4):
        tree.run(n)
    tree.taken("worker:1", m.RunProject)
    tree.activate(0)
    tree.die("worker:0")
    for n in (0, 2):
        tree.activate(n)
    assert run_orders(tree, "worker:1") == run_orders(tree, "worker:0") == []
    tree.ready("worker:0")
    assert sorted(run_orders(tree, "worker:0") + run_orders(tree, "worker:1")) == [0, 2]
    assert tree.children["project:1"].state == UP


def test_a_project_that_was_not_needed_when_its_worker_died_does_not_start(start: Start) -> None:
    tree = start()
    tree.run(0)
    tree.die("worker:0")
    tree.ready("worker:0")
    assert tree.children["project:0"].state == DOWN
    assert health.DOWN not in tree.conditions("project:0")


@pytest.mark.parametrize("sign", [metrics.IN_TURN, metrics.RUNNING_AHEAD], ids=["turn", "ahead"])
def test_only_the_project_that_ran_when_a_worker_died_is_kept_away_from_others(
    start: Start, sign: int
) -> None:
    tree = start()
    for n in range(4):
        tree.run(n)
    tree.set_number(2, sign, 1.0)
    tree.die("worker:0")
    assert tree.conditions("project:2") == {health.DOWN}
    assert tree.conditions("project:0") == set()
    tree.activate(0)
    tree.ready("worker:0")
    tree.ready("worker:p2")
    tree.ready("project:2")
    assert tree.worker_of(2) == "worker:p2"
    assert tree.worker_of(0) != "worker:p2"
    tree.pass_time(SUSPECT_S + 3)
    assert tree.taken("worker:p2", m.Retire) == [m.Retire(2)]
    tree.end_project(2)
    assert tree.worker_of(2) in ("worker:0", "worker:1")


def test_a_worker_that_ends_because_its_disk_failed_makes_no_project_suspect(start: Start) -> None:
    tree = start()
    tree.run(0)
    tree.set_number(0, metrics.IN_TURN, 1.0)
    tree.exit_codes["worker:0"] = DISK_FAILED
    tree.die("worker:0")
    assert tree.conditions("project:0") == set()
    tree.activate(0)
    tree.ready("worker:0")
    assert tree.worker_of(0) in ("worker:0", "worker:1")


def fail_all(tree: Tree, projects: range) -> None:
    """Make the actors of some projects fail, one after the other."""
    for n in projects:
        tree.run(n)
        tree.end_project(n, failed=True)


def test_only_some_suspects_have_workers_at_a_time_and_others_wait_until_one_has_behaved(
    start: Start,
) -> None:
    tree = start()
    fail_all(tree, range(SUSPECTS + 2))
    own = [f"worker:p{n}" for n in range(SUSPECTS)]
    waiting = range(SUSPECTS, SUSPECTS + 2)
    assert [part for part in tree.children if part.startswith("worker:p")] == own
    for n in range(SUSPECTS):
        tree.ready(f"worker:p{n}")
        tree.ready(f"project:{n}")
        tree.pass_time(1)
    for n in waiting:
        assert tree.children[f"project:{n}"].state == STARTING
        assert health.CANNOT_START in tree.conditions(f"project:{n}")
    tree.taken("http:0", m.Unreachable)
    tree.activate(waiting[0])
    assert tree.taken("http:0", m.Unreachable) == [m.Unreachable(waiting[0])]
    tree.pass_time(PROVEN_S)
    assert tree.taken("worker:p0", m.Retire) == [m.Retire(0)], "it has behaved longest"
    tree.end_project(0)
    tree.pass_time(3)
    tree.die("worker:p0")
    tree.pass_time(3)
    assert sum(part.startswith("worker:p") for part in tree.children) == SUSPECTS
    tree.ready(f"worker:p{waiting[0]}")
    tree.ready(f"project:{waiting[0]}")
    assert tree.worker_of(waiting[0]) == f"worker:p{waiting[0]}"


def test_a_project_that_is_to_have_a_worker_of_its_own_does_not_wait_for_suspects(
    start: Start,
) -> None:
    tree = start()
    fail_all(tree, range(SUSPECTS + 1))
    tree.receive(m.DedicatedProjects(frozenset({SUSPECTS})))
    tree.pass_time(3)
    assert f"worker:p{SUSPECTS}" in tree.children


def test_the_project_of_a_dedicated_worker_that_dies_starts_again_when_its_journal_is_read(
    start: Start,
) -> None:
    tree = start()
    tree.receive(m.DedicatedProjects(frozenset({7})))
    tree.activate(7)
    tree.ready("worker:p7")
    tree.ready("project:7")
    tree.taken("worker:p7", m.RunProject)
    tree.receive(m.DedicatedProjects(frozenset()))
    tree.die("worker:p7")  # while the project is moved to a shared worker
    assert run_orders(tree, "worker:0") == run_orders(tree, "worker:1") == []
    tree.ready("worker:p7")
    tree.pass_time(1)
    assert tree.children["project:7"].state == STARTING


def test_a_project_whose_actor_fails_starts_again_with_the_backoff_of_its_own(
    start: Start,
) -> None:
    tree = start()
    worker = tree.run(1)
    tree.end_project(1, failed=True)
    tree.ready("worker:p1")
    for n in range(2, 5):
        assert len(run_orders(tree, "worker:p1")) == 1
        tree.ready("project:1")
        tree.end_project(1, failed=True)
        assert len(tree.taken("http:0", m.Unreachable)) == (n == 4)
        tree.pass_time(2)
    assert tree.conditions("project:1") == {health.DOWN}
    assert tree.children[worker].generation == tree.children["worker:p1"].generation == 1


# ---------------------------------------------------------------- a worker that cannot start


def test_another_worker_reads_the_journal_of_one_that_cannot_start(start: Start) -> None:
    tree = start()
    tree.run(0)
    tree.activate(0)
    tree.die("worker:0")
    tree.activate(0)
    tree.die("worker:0")
    tree.pass_time(3)
    assert tree.taken("worker:1", m.RecoverJournal) == [m.RecoverJournal("0")]
    assert run_orders(tree, "worker:1") == []
    tree.receive(m.JournalRecovered("0"))
    assert run_orders(tree, "worker:1") == [0]


def test_a_worker_that_comes_up_after_all_keeps_its_projects(start: Start) -> None:
    tree = start()
    tree.run(0)
    tree.die("worker:0")
    tree.activate(0)
    tree.die("worker:0")
    tree.pass_time(0)
    tree.supervisor.workers.check(tree.now)
    assert tree.taken("worker:1", m.RecoverJournal) == [m.RecoverJournal("0")]
    tree.pass_time(0.2)
    tree.ready("worker:0")
    ran = run_orders(tree, "worker:0") + run_orders(tree, "worker:1")
    tree.receive(m.JournalRecovered("0"))
    assert ran == [0]
    assert run_orders(tree, "worker:0") + run_orders(tree, "worker:1") == []


def test_projects_stay_where_they_are_while_a_journal_cannot_be_read_at_all(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    tree = start()
    tree.run(0)
    tree.die("worker:0")
    tree.activate(0)
    tree.die("worker:0")
    tree.pass_time(3)
    tree.receive(m.JournalRecovered("0", "segment 3 is damaged"))
    assert "segment 3 is damaged" in caplog.text
    assert run_orders(tree, "worker:1") == []


def test_events_do_not_wait_for_a_project_whose_only_worker_cannot_start(start: Start) -> None:
    tree = start(workers=1)
    tree.run(0)
    for _ in range(4):
        tree.die("worker:0")
        tree.activate(0)
        tree.pass_time(6)
    tree.taken("http:0", m.Unreachable)
    tree.activate(0)
    assert tree.taken("http:0", m.Unreachable) == [m.Unreachable(0)]


def test_the_outbox_of_a_project_that_cannot_retire_is_delivered_nevertheless(start: Start) -> None:
    tree = start(workers=1)
    tree.run(7)
    tree.receive(m.Idle(7, 1))
    tree.receive(m.OutboxFilled(7, 1))
    assert tree.taken("mqtt:0", m.DeliverOutbox) == []
    tree.ready("project:7")
    assert tree.taken("mqtt:0", m.DeliverOutbox) == [m.DeliverOutbox(7, "worker:0.1")]
