"""The conditions for the end of a node's start."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.actors import messages as m
from fieldbrook.actors.supervisor.supervisor import CHAIN_LATE_S, CHAIN_START_LIMIT_S, START_LIMIT_S
from fieldbrook.actors.supervisor.watchdog import LONGEST_PING_S
from fieldbrook.core.settings import Chain
from tests.support.supervisor_tree import Tree

DEV = Chain(id=1, name="dev", endpoints=("http://127.0.0.1:8545",))


class Booting(Tree):
    """A node with one part that has not started yet."""

    def __init__(self, slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(tmp_path, monkeypatch, workers=1, chains=(DEV,))
        self.ready("registry")
        for part in ("worker:0", "http:0", "mqtt:0", "scheduler", "chain:1"):
            if part != slow:
                self.ready(part)

    @property
    def has_booted(self) -> bool:
        return bool(self.told_booter(m.Booted))


@pytest.mark.parametrize(("part", "booted"), [("chain:1", True), ("http:0", False)])
def test_a_node_has_booted_although_a_chain_but_nothing_else_could_not_start(
    part: str, booted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booting = Booting(part, tmp_path, monkeypatch)
    assert not booting.has_booted
    booting.die(part)
    assert booting.has_booted is booted


def test_a_chain_that_starts_slowly_is_let_be_and_waited_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booting = Booting("chain:1", tmp_path, monkeypatch)
    booting.pass_time(CHAIN_LATE_S + 1)
    assert booting.has_booted
    assert booting.killed == []
    booting.pass_time(CHAIN_START_LIMIT_S - CHAIN_LATE_S)
    assert booting.killed == ["chain:1"]


def test_another_part_that_does_not_start_in_time_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booting = Booting("http:0", tmp_path, monkeypatch)
    booting.pass_time(START_LIMIT_S + 1)
    assert (booting.has_booted, booting.killed) == (False, ["http:0"])


@pytest.mark.parametrize("part", ["http:0", "worker:0", "chain:1"])
def test_a_part_that_died_while_it_started_is_started_again_though_nobody_gave_notice(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booting = Booting(part, tmp_path, monkeypatch)
    booting.die(part, noticed=False)
    booting.pass_time(2 * LONGEST_PING_S)
    assert booting.children[part].generation == 2
    booting.ready(part)
    assert booting.has_booted


def test_a_part_that_is_told_to_be_ready_after_its_death_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booting = Booting("http:0", tmp_path, monkeypatch)
    booting.die("http:0")
    booting.die("http:0")  # now its restart waits for a moment
    booting.ready("http:0")  # the message was sent before the death
    assert not booting.has_booted
    booting.pass_time(1)
    assert booting.children["http:0"].generation == 3
    booting.ready("http:0")
    assert booting.has_booted


def test_a_part_that_died_while_it_ran_or_ended_is_noticed_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(tmp_path, monkeypatch, workers=1)
    tree.boot()
    tree.die("http:0", noticed=False)
    tree.receive(m.DedicatedProjects(frozenset({7})))
    tree.activate(7)
    tree.ready("worker:p7")
    tree.ready("project:7")
    tree.receive(m.Idle(7, 1))
    tree.end_project(7)
    tree.pass_time(2 * LONGEST_PING_S)
    assert tree.stopped == ["worker:p7"]
    tree.die("worker:p7", noticed=False)
    tree.pass_time(2 * LONGEST_PING_S)
    assert tree.children["http:0"].generation == 2
    assert "worker:p7" not in tree.children


def test_a_worker_that_cannot_read_its_journal_at_the_start_keeps_the_node_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booting = Booting("worker:0", tmp_path, monkeypatch)
    booting.receive(m.Failed("worker:0", "the journal is damaged"))
    assert booting.told_booter(m.BootFailed) == [m.BootFailed("worker:0", "the journal is damaged")]


def test_a_worker_of_a_single_project_does_not_keep_the_node_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booting = Booting("scheduler", tmp_path, monkeypatch)
    booting.receive(m.DedicatedProjects(frozenset({7})))
    booting.activate(7)
    booting.receive(m.Failed("worker:p7", "the disk is full"))
    assert booting.told_booter(m.BootFailed) == []
    booting.ready("scheduler")
    assert booting.has_booted
