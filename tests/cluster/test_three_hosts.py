"""Three hosts: each answers for any project, and the death of one loses nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.applets import SENDER, TALLY
from tests.support.brokers import Subscriber
from tests.support.hosts import Cluster, Host, Senders, refusal
from tests.support.networks import Network
from tests.support.nodes import message, named, strategies, until

PROJECT = "room"
DEAD = {"host_silent", "one_more_loss_is_an_outage"}


class Site:
    """A cluster whose first host had a project before the others joined."""

    def __init__(self, folder: Path, network: Network | None = None) -> None:
        self.cluster = Cluster(folder, self._prepare, network)
        self.hosts = self.cluster.hosts
        self.owner = self.cluster.owner(self.project)

    def _prepare(self, host: Host) -> None:
        self.project: Any = host.create_project(PROJECT)
        self.applet: str = host.deploy(PROJECT, TALLY)["appletID"]
        self.publisher: Any = host.add_publisher(PROJECT, "sensor")
        assert host.send(PROJECT, message(self.publisher)).status == 201

    def count(self, host: Host) -> int:
        """Return how many events the project has counted, according to any host."""
        return host.count(PROJECT, self.applet)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("hosts"))
    yield made
    made.cluster.stop()


def test_each_host_answers_for_a_project_that_was_there_before(site: Site) -> None:
    before = site.count(site.hosts[0])
    for number, host in enumerate(site.hosts, 1):
        assert host.send(PROJECT, message(site.publisher)).status == 201
        assert [site.count(other) for other in site.hosts] == [before + number] * 3


def test_an_event_that_is_sent_again_to_another_host_runs_once(site: Site) -> None:
    before = site.count(site.hosts[0])
    event = named(message(site.publisher), "again")
    first, second, third = (host.send(PROJECT, event) for host in site.hosts)
    assert first.status == second.status == third.status == 201
    assert first.json["results"] == second.json["results"] == third.json["results"]
    assert site.count(site.hosts[1]) == before + 1


def test_a_change_on_one_host_is_in_force_on_all(site: Site) -> None:
    for host in site.hosts:
        name = f"lake_{host.name}"
        host.create_project(name)
        applet = host.deploy(name, TALLY)["appletID"]
        publisher = host.add_publisher(name, "sensor")
        for other in site.hosts:
            assert other.send(name, message(publisher)).status == 201
        assert [other.count(name, applet) for other in site.hosts] == [3, 3, 3]


def test_a_token_that_is_taken_away_is_refused_on_all_hosts_at_once(site: Site) -> None:
    publisher = site.hosts[0].add_publisher(PROJECT, "guest")
    for host in site.hosts:
        assert host.send(PROJECT, message(publisher)).status == 201
    removed = site.hosts[1].call("DELETE", f"/publisher/data/{publisher['publisherID']}")
    assert removed.status in (200, 204), removed
    assert {host.send(PROJECT, message(publisher)).status for host in site.hosts} <= {401, 404}


def test_what_a_handler_sends_reaches_subscribers_on_each_host_once(site: Site) -> None:
    first = site.hosts[0]
    first.create_project("mail")
    first.deploy("mail", SENDER, strategies=strategies(DEFAULT="publish"))
    publisher = first.add_publisher("mail", "sensor")
    subscribers = [Subscriber(host, "out/readings") for host in site.hosts]
    texts = [str(number) for number in range(6)]

    def has_all(one: Subscriber) -> bool:
        return len(one.received("out/readings")) >= len(texts)

    for number, text in enumerate(texts):
        event = message(publisher, text.encode())
        assert site.hosts[number % 3].send("mail", event).status == 201
    for subscriber in subscribers:
        until(partial(has_all, subscriber), "all messages")
        assert subscriber.received("out/readings") == texts
        subscriber.close()


def _may_lose_one(host: Host) -> bool:
    return bool(host.call("GET", "/cluster").json["spare"] == 1)


def test_each_host_lists_all_and_invites_more(site: Site) -> None:
    for host in site.hosts:
        until(partial(_may_lose_one, host), "the replicas of all streams have caught up")
        answer = host.call("GET", "/cluster").json
        assert (answer["total"], answer["missing"]) == (3, 0)
        assert sum(row["projects"] for row in answer["data"]) >= 1
        assert [row["name"] for row in answer["data"] if row["me"]] == [host.name]
        invitation = host.call("POST", "/cluster/invitation").json
        assert invitation["token"].startswith("fbj_")
        assert invitation["address"].endswith(f":{site.hosts[0].cluster_port}")


def test_a_host_without_a_valid_token_is_refused_in_words(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("new")  # `tmp_path` is too long for Unix sockets
    founder = site.hosts[0]
    join, address, flag, token = founder.invitation()
    for wrong, words in (
        ("fbj_nonsense", "is not a join token"),
        (token[:10] + ("A" if token[10] != "A" else "B") + token[11:], "token"),
    ):
        stranger = Host(folder / "stranger", "h9", join, address, flag, wrong, ready=False)
        assert words in refusal(stranger)
        assert not (folder / "stranger" / "cluster").exists()
    taken = Host(folder / "taken", founder.name, join, address, flag, token, ready=False)
    assert "the cluster already has a host 'h1'" in refusal(taken)


def test_the_death_of_a_host_loses_no_event_and_doubles_none(site: Site) -> None:
    before = site.count(site.hosts[0])
    survivor = site.cluster.others(site.owner)[0]
    with Senders(site.hosts, PROJECT, site.publisher) as senders:
        senders.await_more(50)
        site.owner.kill()
        senders.await_more(50)
        until(lambda: survivor.states()[site.owner.name] == "silent", "its silence is shown")
        until(lambda: survivor.conditions() >= DEAD, "the conditions are there")
        site.owner.start(ready=False)
        site.cluster.await_up()
        senders.await_more(50)
    assert len(set(senders.acknowledged)) == len(senders.acknowledged)
    assert {site.count(host) for host in site.hosts} == {before + len(senders.acknowledged)}


def test_a_read_after_the_death_of_the_owner_waits_for_the_newest_state(site: Site) -> None:
    for _ in range(5):
        assert site.owner.send(PROJECT, message(site.publisher)).status == 201
    before = site.count(site.owner)
    site.owner.kill()
    counts = {site.count(host) for host in site.cluster.others(site.owner)}
    site.owner.start(ready=False)
    site.cluster.await_up()
    assert counts == {before}


def test_the_death_of_all_hosts_at_the_same_time_loses_no_event_and_doubles_none(
    site: Site,
) -> None:
    before = site.count(site.hosts[0])
    publisher = site.hosts[0].add_publisher(PROJECT, "before the end")
    with Senders(site.hosts, PROJECT, publisher) as senders:
        senders.await_more(50)
        site.cluster.crash()
        senders.await_more(50)
    assert {site.count(host) for host in site.hosts} == {before + len(senders.acknowledged)}


def test_the_death_of_an_engine_loses_no_event_and_refuses_none(site: Site) -> None:
    before = site.count(site.hosts[0])
    publisher = site.hosts[0].add_publisher(PROJECT, "beside the engine")
    killed = site.owner.engine()
    with Senders(site.hosts, PROJECT, publisher) as senders:
        senders.await_more(20)
        os.kill(killed, signal.SIGKILL)
        until(lambda: site.owner.engine() not in (0, killed), "another engine runs")
        senders.await_more(50)
    assert senders.refused == []
    site.cluster.await_up()
    assert {site.count(host) for host in site.hosts} == {before + len(senders.acknowledged)}


@pytest.mark.thorough
def test_a_host_that_was_paused_commits_nothing_that_others_have_taken_over(site: Site) -> None:
    before = site.count(site.hosts[0])
    survivor = site.cluster.others(site.owner)[0]
    publisher = site.hosts[0].add_publisher(PROJECT, "second")
    hosts = site.cluster.others(site.owner)
    with Senders(hosts, PROJECT, publisher) as senders:
        senders.await_more(50)
        site.owner.pause()
        try:
            until(lambda: survivor.states()[site.owner.name] == "silent", "its silence is shown")
            senders.await_more(50)
        finally:
            site.owner.go_on()
        site.cluster.await_up()
        senders.await_more(50)
    assert {site.count(host) for host in site.hosts} == {before + len(senders.acknowledged)}


@pytest.mark.thorough
def test_nothing_is_acknowledged_without_a_quorum_and_nothing_is_lost(site: Site) -> None:
    before = site.count(site.hosts[0])
    event = named(message(site.publisher), "alone")
    survivor = site.hosts[0]
    for host in site.cluster.others(survivor):
        host.kill()
    assert survivor.send(PROJECT, event).status == 503
    for host in site.cluster.others(survivor):
        host.start(ready=False)
    site.cluster.await_up()
    until(lambda: survivor.send(PROJECT, event).status == 201, "it is acknowledged")
    assert {site.count(host) for host in site.hosts} == {before + 1}
