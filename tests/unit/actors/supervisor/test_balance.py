"""Which projects are moved, and which workers are restarted, because of their processor time and
memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.actors import messages as m
from fieldbrook.actors.supervisor.balance import Rates, to_move
from fieldbrook.actors.supervisor.child import UP
from fieldbrook.observability import health, metrics
from tests.support.supervisor_tree import Tree

MIB = 1 << 20


class Loaded(Tree):
    """Two workers, and six projects of which the even ones run in `worker:0`."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(tmp_path, monkeypatch, workers=2)
        self.boot()
        for n in range(6):
            self.run(n)

    def work(self, seconds: float, workers: Mapping[str, float], busy: Mapping[int, float]) -> None:
        """Advance the time; meanwhile workers and projects use shares of a core."""
        passed = 0.0
        while passed < seconds:
            passed += 1
            for part, share in workers.items():
                self.cpu_s[part] = self.cpu_s.get(part, 0.0) + share
            for n, share in busy.items():
                self.set_number(n, metrics.BUSY_SECONDS, passed * share)
            self.pass_time(1)

    def retiring(self) -> set[int]:
        """Return the projects that a worker had to end since the last call."""
        orders = (*self.taken("worker:0", m.Retire), *self.taken("worker:1", m.Retire))
        return {order.project_id for order in orders}


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    return Loaded(tmp_path, monkeypatch)


# ---------------------------------------------------------------- processor time


def test_the_neighbours_of_a_heavy_project_move_to_a_worker_that_does_less(loaded: Loaded) -> None:
    loaded.work(20, {"worker:0": 1.0, "worker:1": 0.1}, {0: 0.8, 2: 0.1, 4: 0.1})
    assert loaded.retiring() == {2, 4}
    for n in (2, 4):
        loaded.end_project(n)
        assert loaded.worker_of(n) == "worker:1"
    assert loaded.worker_of(0) == "worker:0"


def test_idle_neighbours_stay(loaded: Loaded) -> None:
    loaded.work(20, {"worker:0": 1.0, "worker:1": 0.1}, {0: 0.9, 2: 0.1})
    assert loaded.retiring() == {2}


def test_nobody_moves_when_the_other_worker_is_busy_too(loaded: Loaded) -> None:
    loaded.work(20, {"worker:0": 1.0, "worker:1": 0.8}, {0: 0.8, 2: 0.1, 1: 0.8})
    assert loaded.retiring() == set()


def test_nobody_moves_within_ten_seconds(loaded: Loaded) -> None:
    loaded.work(8, {"worker:0": 1.0}, {0: 0.8, 2: 0.1})
    assert loaded.retiring() == set()


def test_a_worker_is_left_alone_for_a_while_after_a_move(loaded: Loaded) -> None:
    loaded.work(12, {"worker:0": 1.0}, {0: 0.5, 2: 0.5})
    assert loaded.retiring() == {2}
    loaded.work(16, {"worker:0": 1.0}, {0: 0.5, 4: 0.5})
    assert loaded.retiring() == set()


@given(st.dictionaries(st.text(), st.floats(0, 2), min_size=1), st.floats(0.9, 4), st.floats(0, 1))
def test_a_move_never_makes_the_other_worker_the_busier_one(
    used: dict[str, float], busy: float, part_of_it: float
) -> None:
    calm = busy * part_of_it
    moving = to_move(used, busy, (busy - calm) / 2)
    factor = min(1.0, busy / max(sum(used.values()), 1e-9))
    share = sum(used[part] for part in moving) * factor
    assert max(used, key=lambda part: used[part]) not in moving
    assert calm + share <= busy - share + 0.05


def test_a_share_is_that_of_the_last_ten_seconds() -> None:
    rates = Rates()
    for second in range(30):
        rates.record("worker:0", second, min(second, 15))
    assert rates.share("worker:0") == 0.0
    rates.record("worker:0", 30, 17)
    assert rates.whole_share("worker:0") == pytest.approx(0.2, abs=0.05)
    assert rates.share("worker:1") == rates.whole_share("worker:1") == 0.0


# ---------------------------------------------------------------- memory


def test_a_project_above_its_memory_is_started_again_and_told(loaded: Loaded) -> None:
    loaded.set_number(2, metrics.PROJECT_MEMORY, 600 * MIB)
    loaded.pass_time(3)
    assert loaded.retiring() == {2}
    assert loaded.conditions("project:2") == {health.MEMORY_HIGH}
    loaded.end_project(2)
    worker = loaded.worker_of(2)
    assert [order.project_id for order in loaded.taken(worker, m.RunProject)][-1] == 2
    loaded.ready("project:2")
    loaded.pass_time(3)
    assert loaded.children["project:2"].state == UP


def test_the_largest_project_of_a_worker_above_its_memory_is_started_again(loaded: Loaded) -> None:
    loaded.private["worker:0"] = 5_000 * MIB
    loaded.set_number(4, metrics.PROJECT_MEMORY, 510 * MIB)
    loaded.pass_time(2)
    assert loaded.retiring() == {4}
    assert loaded.stopped == []


def test_a_worker_is_started_again_when_no_project_has_its_memory(loaded: Loaded) -> None:
    loaded.private["worker:0"] = 5_000 * MIB
    loaded.pass_time(3)
    assert loaded.stopped == ["worker:0"]
    assert loaded.conditions("worker:0") == {health.MEMORY_HIGH}
    loaded.activate(0)
    loaded.private.clear()
    loaded.die("worker:0")
    loaded.activate(0)
    loaded.ready("worker:0")
    worker = loaded.worker_of(0)
    assert 0 in [order.project_id for order in loaded.taken(worker, m.RunProject)]
    assert loaded.conditions("project:0") == set()
