"""Messages between hosts about the projects that they run."""

from __future__ import annotations

from fieldbrook.core.cluster import running
from fieldbrook.core.cluster.running import RunningProjects


def tell(one: RunningProjects, other: RunningProjects) -> None:
    for message in one.messages():
        assert other.take("h1", message) is not None


def test_a_host_that_connects_hears_all_projects_in_several_messages() -> None:
    one, other = RunningProjects(), RunningProjects()
    count = 2 * running.PART_PROJECTS + 1
    for number in range(count):
        one.note(number, runs=True, sends=number == 7)
    assert len(list(one.messages())) == 3
    tell(one, other)
    assert dict(other.hosts()) == dict.fromkeys(range(count), "h1")
    assert other.forget("h1") == (7,), "the projects whose outbox had entries"
    assert dict(other.hosts()) == {}


def test_what_a_host_ran_before_its_restart_is_replaced() -> None:
    other = RunningProjects()
    before = RunningProjects()
    before.note(1, runs=True, sends=False)
    tell(before, other)
    after = RunningProjects()
    after.note(2, runs=True, sends=False)
    tell(after, other)
    assert dict(other.hosts()) == {2: "h1"}


def test_changes_are_told_one_by_one() -> None:
    one, other = RunningProjects(), RunningProjects()
    assert other.take("h1", one.note(1, runs=True, sends=False)) == ((1,), (), False)
    assert other.take("h1", one.note(1, runs=True, sends=True)) == ((1,), (), False)
    assert other.take("h1", one.note(1, runs=False, sends=False)) == ((), (1,), False)
    assert other.take("h1", {"beat": {}}) is None
    assert other.forget("h1") == ()


def test_own_projects_are_among_those_that_run() -> None:
    one = RunningProjects()
    one.note(3, runs=True, sends=False)
    assert dict(one.hosts()) == {3: None}
