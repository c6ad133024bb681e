"""Hosts that leave a cluster: stopped, drained, removed for good and replaced."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from fieldbrook.cluster.changes import all_streams
from tests.cluster.test_three_hosts import PROJECT, Site
from tests.support.hosts import Host, Senders, refusal
from tests.support.nodes import message, named, until

STREAMS = len(all_streams())
SOON_S = 3.0  # much less than the start of a host takes


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("leave"))
    yield made
    made.cluster.stop()


def runs_on(host: Host) -> dict[str, int]:
    """Return how many projects each host runs or would run, according to one host."""
    rows = host.call("GET", "/cluster").json["data"]
    return {row["name"]: row["projects"] for row in rows}


def copies(host: Host) -> list[int]:
    """Return of how many streams each host has a copy, according to one host."""
    return [row.get("streamsHeld", 0) for row in host.call("GET", "/cluster").json["data"]]


def accepts(host: Host) -> bool:
    """Return whether a host accepts connections of devices."""
    connection = host.connection(host.http_port)
    try:
        connection.connect()
    except ConnectionRefusedError:
        return False
    connection.close()
    return True


def test_a_drained_host_gives_its_projects_up_without_a_refused_event(site: Site) -> None:
    before = site.count(site.hosts[0])
    others = site.cluster.others(site.owner)
    publisher = site.hosts[0].add_publisher(PROJECT, "drained")
    with Senders(site.hosts, PROJECT, publisher) as senders:
        senders.await_more(20)
        assert others[0].call("POST", f"/cluster/hosts/{site.owner.name}/drain").status == 204
        until(lambda: others[1].states()[site.owner.name] == "drained", "it is drained")
        until(lambda: runs_on(others[0])[site.owner.name] == 0, "its projects have moved")
        senders.await_more(20)
    assert senders.refused == []
    assert {site.count(host) for host in site.hosts} == {before + len(senders.acknowledged)}
    again = others[0].call("DELETE", f"/cluster/hosts/{site.owner.name}/drain")
    assert again.status == 204
    site.cluster.await_up()
    until(lambda: runs_on(others[0])[site.owner.name] == 1, "it has its project again")


def test_a_pinned_project_moves_to_its_host_and_back_without_a_refused_event(site: Site) -> None:
    before = site.count(site.hosts[0])
    owner = site.owner
    to, other = site.cluster.others(owner)
    publisher = site.hosts[0].add_publisher(PROJECT, "pinned")
    pin = f"/cluster/projects/{PROJECT}/pin"

    def owned() -> list[tuple[str, str]]:
        rows = [host.call("GET", "/cluster/projects").json["data"] for host in site.hosts]
        return [(row["host"], row.get("pinnedTo", "")) for (row,) in rows]

    with Senders(site.hosts, PROJECT, publisher) as senders:
        senders.await_more(20)
        assert other.call("PUT", pin, {"host": to.name}).status == 204
        until(lambda: owned() == [(to.name, to.name)] * 3, "the project has moved")
        senders.await_more(20)
        assert other.call("DELETE", pin).status == 204
        until(lambda: owned() == [(owner.name, "")] * 3, "the project has moved back")
        senders.await_more(20)
    assert senders.refused == []
    assert {site.count(host) for host in site.hosts} == {before + len(senders.acknowledged)}


@pytest.mark.thorough
def test_a_pinned_project_runs_elsewhere_while_its_host_is_down(site: Site) -> None:
    before = site.count(site.hosts[0])
    pinned, *others = site.cluster.others(site.owner)
    pin = f"/cluster/projects/{PROJECT}/pin"
    assert pinned.call("PUT", pin, {"host": pinned.name}).status == 204
    until(lambda: runs_on(others[0])[pinned.name] == 1, "the project has moved")
    pinned.kill()
    event = named(message(site.publisher), "meanwhile")
    until(lambda: others[0].send(PROJECT, event).status == 201, "another host runs it")
    pinned.start(ready=False)
    site.cluster.await_up()
    until(lambda: runs_on(others[0])[pinned.name] == 1, "its host has it again")
    assert {site.count(host) for host in site.hosts} == {before + 1}
    assert others[0].call("DELETE", pin).status == 204
    until(lambda: runs_on(others[0])[pinned.name] == 0, "its own host has it again")


def test_changes_of_hosts_are_refused_in_words(site: Site) -> None:
    host = site.hosts[1]
    for method, path, body, words in (
        ("POST", "/cluster/hosts/h9/drain", None, "the cluster has no host 'h9'"),
        ("DELETE", "/cluster/hosts/h1", None, "host 'h1' is up"),
        ("PUT", f"/cluster/projects/{PROJECT}/pin", {"host": "h9"}, "the cluster has no host 'h9'"),
    ):
        answer = host.call(method, path, body)
        assert answer.status == 409, answer
        assert words in answer.json["desc"]
    assert host.states() == dict.fromkeys(("h1", "h2", "h3"), "up")


@pytest.mark.thorough
def test_a_host_that_is_stopped_gives_its_projects_up_first(site: Site) -> None:
    before = site.count(site.hosts[0])
    others = site.cluster.others(site.owner)
    publisher = site.hosts[0].add_publisher(PROJECT, "stopped")
    with Senders(others, PROJECT, publisher) as senders:
        senders.await_more(20)
        site.owner.stop()
        senders.await_more(20)
    assert senders.refused == []
    assert {site.count(host) for host in others} == {before + len(senders.acknowledged)}
    site.owner.start(ready=False)
    site.cluster.await_up()


@pytest.mark.thorough
def test_hosts_that_are_restarted_one_after_the_other_refuse_no_event(site: Site) -> None:
    before = site.count(site.hosts[0])
    publisher = site.hosts[0].add_publisher(PROJECT, "through restarts")
    with Senders(site.hosts, PROJECT, publisher) as senders:
        for host in site.hosts:
            senders.await_more(20)
            host.stop(signal.SIGTERM)
            senders.await_more(20)
            host.start(ready=False)
            site.cluster.await_up()
    assert senders.refused == []
    assert {site.count(host) for host in site.hosts} == {before + len(senders.acknowledged)}


@pytest.mark.thorough
def test_a_host_that_starts_refuses_connections_until_it_serves(site: Site) -> None:
    host = site.cluster.others(site.owner)[0]
    host.stop(signal.SIGTERM)
    started_at = time.monotonic()
    host.start(ready=False)
    until(lambda: accepts(host), "it accepts connections")
    accepted_at = time.monotonic()
    assert host.send(PROJECT, message(site.publisher)).status == 201
    assert time.monotonic() - accepted_at < max(SOON_S, accepted_at - started_at)
    site.cluster.await_up()


@pytest.mark.thorough
def test_a_host_that_is_gone_is_removed_and_another_one_takes_its_place(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = site.count(site.hosts[0])
    gone = site.hosts[0]  # it has founded the cluster
    left = site.cluster.others(gone)
    gone.kill()
    until(lambda: left[0].states().get("h1") == "silent", "its silence is shown")
    until(lambda: left[0].call("DELETE", "/cluster/hosts/h1").status == 204, "it is removed")
    until(lambda: left[1].states() == {"h2": "up", "h3": "up"}, "the others know it")
    folder = tmp_path_factory.mktemp("place")
    join = left[1].invitation()
    again = Host(folder / "again", "h1", *join, ready=False)
    assert "names cannot be used again" in refusal(again)
    fourth = Host(folder / "h4", "h4", *join, ready=False)
    site.cluster.hosts[:] = [*left, fourth]
    fourth.token = left[0].token
    names = dict.fromkeys(("h2", "h3", "h4"), "up")
    until(lambda: all(host.states() == names for host in site.cluster.hosts), "all are there")
    assert {site.count(host) for host in site.cluster.hosts} == {before}
    # With three copies again, the loss of one more host stops nothing.
    until(lambda: left[0].call("GET", "/cluster").json["spare"] == 1, "one may die")
    until(lambda: set(copies(left[0])) == {STREAMS}, "each of them has a copy of each stream")
    left[0].kill()
    event = named(message(site.publisher), "afterwards")
    until(lambda: left[1].send(PROJECT, event).status == 201, "events are acknowledged")
    assert site.count(fourth) == before + 1
    gone.start(ready=False)
    assert "was removed from its cluster" in refusal(gone)
    site.cluster.hosts[:] = [left[1], fourth]
