"""Which host of a cluster runs a project, and how a project is handed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.actors import messages as m
from fieldbrook.actors.supervisor.child import BACKOFF, DOWN, RETIRING, STARTING, UP
from fieldbrook.actors.supervisor.projects import CLUSTER
from fieldbrook.core.cluster.membership import Host, Membership
from fieldbrook.core.cluster.placement import home, project_name
from tests.support.supervisor_tree import Tree

NAMES = ("h1", "h2", "h3")
HOSTS = Membership("c", "h1", tuple(Host(name, "127.0.0.1", 1, 2) for name in NAMES), formed=True)


def projects_of(host: str, count: int = 1) -> list[int]:
    """Return ids of projects that belong to a host while all hosts are present."""
    found = (number for number in range(1, 10_000) if home(project_name(number), NAMES) == host)
    return [next(found) for _ in range(count)]


class OneHost(Tree):
    """The host h1, which is connected to the two others."""

    cluster = HOSTS

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(tmp_path, monkeypatch, workers=1)
        self.ready("engine")
        self.ready(CLUSTER)
        self.receive(m.HostsUp("h1", NAMES))
        self.boot()

    def state(self, project_id: int) -> str:
        return self.children[f"project:{project_id}"].state

    def told(self) -> list[tuple[int, bool, bool]]:
        return [(one.project_id, one.runs, one.sends) for one in self.taken(CLUSTER, m.ProjectRuns)]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OneHost:
    return OneHost(tmp_path, monkeypatch)


def test_a_project_is_asked_for_on_the_host_that_runs_it_though_it_belongs_here(
    host: OneHost,
) -> None:
    (own,) = projects_of("h1")
    host.receive(m.RunsOn("h2", (own,)))
    host.activate(own)
    assert [one.host for one in host.taken(CLUSTER, m.ActivateOn)] == ["h2"]
    host.receive(m.RunsOn("h2", (), (own,)))
    host.run(own)
    assert host.state(own) == UP


def test_a_project_that_belongs_elsewhere_is_asked_for_there(host: OneHost) -> None:
    (other,) = projects_of("h3")
    host.activate(other)
    assert [one.host for one in host.taken(CLUSTER, m.ActivateOn)] == ["h3"]
    assert host.state(other) == DOWN


def test_a_project_moves_to_the_host_that_it_is_pinned_to_and_back(host: OneHost) -> None:
    (own,) = projects_of("h1")
    host.run(own)
    host.receive(m.HostsUp("h1", NAMES, pins={own: "h3"}))
    assert host.state(own) == RETIRING
    host.end_project(own)
    host.activate(own)
    assert [one.host for one in host.taken(CLUSTER, m.ActivateOn)] == ["h3"]
    host.receive(m.HostsUp("h1", ("h1", "h2"), pins={own: "h3"}))
    host.run(own)
    assert host.state(own) == UP


def test_the_others_are_told_what_runs_here_and_whether_it_has_something_to_send(
    host: OneHost,
) -> None:
    (own,) = projects_of("h1")
    host.run(own)
    assert host.told() == [(own, True, False)]
    generation = host.children[f"project:{own}"].generation
    host.receive(m.OutboxFilled(own, generation, ""))
    assert host.told() == [(own, True, True)]
    host.supervisor.projects.retire(host.children[f"project:{own}"])
    host.end_project(own)
    assert host.told() == [(own, False, True)]


def test_projects_of_a_host_that_died_with_messages_to_send_start_where_they_belong_now(
    host: OneHost,
) -> None:
    left = ("h1", "h3")
    of_dead = projects_of("h2", 20)
    mine = [number for number in of_dead if home(project_name(number), left) == "h1"]
    host.receive(m.RunsOn("h2", tuple(of_dead)))
    host.receive(m.HostsUp("h1", left, (), tuple(of_dead)))
    started = [number for number in of_dead if host.state(number) != DOWN]
    assert started == mine
    assert 0 < len(mine) < len(of_dead)


def test_a_host_that_stops_gives_all_its_projects_up_before_it_is_drained(host: OneHost) -> None:
    own = projects_of("h1", 5)
    for number in own:
        host.run(number)
    host.receive(m.Drain())
    for child in host.children.values():
        if child.is_gateway and child.address is not None:
            host.receive(m.Drained(), child.address)
    for _ in own:
        assert host.told_booter(m.Drained) == []
        retiring = [number for number in own if host.state(number) == RETIRING]
        assert 0 < len(retiring) <= 2
        host.end_project(retiring[0])
    assert len(host.told_booter(m.Drained)) == 1


def test_the_other_hosts_hear_first_that_a_project_has_ended(host: OneHost) -> None:
    (own,) = projects_of("h1")
    host.run(own)
    host.receive(m.Drain())
    host.activate(own)  # a gateway has an event for it
    host.taken("http:0", m.RouteTo)
    host.taken(CLUSTER, object)
    host.end_project(own)
    assert [type(one) for one in host.taken(CLUSTER, object)][:1] == [m.ProjectRuns]
    assert host.taken("http:0", m.RouteTo) == [m.RouteTo(own, None)]


def test_a_host_gets_projects_when_all_its_parts_have_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = OneHost(tmp_path, monkeypatch)
    assert len(host.taken(CLUSTER, m.Booted)) == 1
    host.die(CLUSTER)
    host.pass_time(1.0)
    assert host.taken(CLUSTER, m.Booted) == []
    host.ready(CLUSTER)
    assert len(host.taken(CLUSTER, m.Booted)) == 1


def test_a_project_that_was_taken_over_is_not_taken_back(host: OneHost) -> None:
    (own,) = projects_of("h1")
    host.run(own)
    host.receive(m.RunsOn("h2", (own,)))
    host.end_project(own, failed=True)
    assert host.state(own) == DOWN
    assert [one.host for one in host.taken(CLUSTER, m.ActivateOn)] == ["h2"]


def test_projects_that_wait_after_failures_are_tried_again_when_hosts_come_or_go(
    host: OneHost,
) -> None:
    host.receive(m.HostsUp("h1", ("h1",)))
    waiting = [*projects_of("h1"), *projects_of("h2")]
    for number in waiting:
        host.activate(number)
        for _ in range(4):  # without a quorum
            child = host.children[f"project:{number}"]
            host.receive(m.Failed(child.part, "no quorum"))
            host.pass_time(child.restarts.delay_s)
        host.receive(m.Failed(child.part, "no quorum"))
    assert [host.state(number) for number in waiting] == [BACKOFF] * 2
    host.receive(m.HostsUp("h1", NAMES))
    assert [host.state(number) for number in waiting] == [STARTING, DOWN]
    assert [one.host for one in host.taken(CLUSTER, m.ActivateOn)] == ["h2"]


def test_a_project_that_comes_here_is_started_at_once_if_a_gateway_waits_for_it(
    host: OneHost,
) -> None:
    waited, quiet = projects_of("h1", 2)
    host.receive(m.RunsOn("h2", (waited, quiet)))
    host.activate(waited)
    host.receive(m.RunsOn("h2", (), (waited, quiet)))
    assert host.state(waited) == STARTING
    assert f"project:{quiet}" not in host.children or host.state(quiet) == DOWN
    host.ready(f"project:{waited}")
    assert [route.project_id for route in host.taken("http:0", m.RouteTo)] == [waited]


def test_gateways_ask_again_when_another_host_does_not_run_what_belongs_here_by_now(
    host: OneHost,
) -> None:
    own, running = projects_of("h1", 2)
    gateway = host.children["http:0"].address
    assert gateway is not None
    host.receive(m.RunsOn("h2", (own,)))
    host.receive(m.Activate(own, 7, 1), gateway)
    host.receive(m.Activate(running, 7, 1), gateway)
    host.ready(f"project:{running}")
    host.taken("http:0", m.RouteTo)
    host.receive(m.RunsOn("h2", (), (own,)))
    assert host.state(own) == DOWN, "the quota of its account is used up"
    assert host.taken("http:0", m.RouteTo) == [m.RouteTo(own, None)]
    host.receive(m.RemoteRoute(own, "h2", None, alone=False))
    assert host.taken("http:0", m.RouteTo) == [m.RouteTo(own, None)]


def test_the_next_host_is_asked_at_once_for_a_project_that_moves(host: OneHost) -> None:
    (other,) = projects_of("h3")
    host.receive(m.RunsOn("h2", (other,)))
    host.activate(other)
    host.receive(m.RunsOn("h2", (), (other,)))
    host.receive(m.RunsOn("h3", (other,)))
    assert [one.host for one in host.taken(CLUSTER, m.ActivateOn)] == ["h2", "h3"]


def test_the_late_answer_of_the_host_before_does_not_end_a_route(host: OneHost) -> None:
    (other,) = projects_of("h3")
    late = m.RemoteRoute(other, "h2", None, alone=False)
    host.receive(m.RunsOn("h2", (other,)))
    host.activate(other)
    host.receive(m.RunsOn("h2", (), (other,)))
    host.receive(late)
    assert host.taken("http:0", m.RouteTo) == [], "h3 is asked by now"
    host.receive(m.RemoteRoute(other, "h3", "w0.1", alone=False))
    (route,) = host.taken("http:0", m.RouteTo)
    assert route.path is not None
    host.receive(late)
    assert host.taken("http:0", m.RouteTo) == []
    host.receive(m.RemoteRoute(other, "h3", None, alone=False))
    assert host.taken("http:0", m.RouteTo) == [m.RouteTo(other, None)]


def test_those_who_wait_for_a_project_that_starts_elsewhere_are_told(host: OneHost) -> None:
    (own,) = projects_of("h1")
    host.activate(own)
    child = host.children[f"project:{own}"]
    for _ in range(2):
        host.receive(m.Failed(child.part, "no quorum"))
    assert host.state(own) == BACKOFF
    host.taken("http:0", m.RouteTo)
    host.receive(m.HostsUp("h1", ("h2", "h3")))
    assert host.state(own) == DOWN
    assert m.RouteTo(own, None) in host.taken("http:0", m.RouteTo)
    assert m.RouteTo(own, None) in host.taken(CLUSTER, m.RouteTo)


def test_a_host_without_a_majority_starts_no_project_until_another_host_comes(
    host: OneHost,
) -> None:
    own, running = projects_of("h1", 2)
    host.run(running)
    host.receive(m.HostsUp("h1", ("h1",), alone=True))
    host.activate(own)
    assert host.state(own) == DOWN
    host.end_project(running, failed=True)  # its batch was not committed
    host.pass_time(30.0)
    assert host.state(running) == BACKOFF
    host.activate(running)
    told = host.taken("http:0", m.Unreachable)
    assert {m.Unreachable(own), m.Unreachable(running)} <= {*told}
    host.receive(m.HostsUp("h1", ("h1", "h2")))
    host.activate(own)
    assert [host.state(number) for number in (own, running)] == [STARTING, STARTING]
