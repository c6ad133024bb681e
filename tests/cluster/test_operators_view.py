"""What an operator sees of three hosts: the state of each, health conditions, and metrics."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.observability import health
from fieldbrook.storage.replication.connection import Connection
from fieldbrook.storage.replication.endpoint import endpoint_in
from fieldbrook.storage.replication.streams import SHARDS, project_subject
from fieldbrook.storage.replication.takeover import last
from tests.support.applets import TALLY
from tests.support.hosts import Cluster, Host, Senders
from tests.support.metrics import one
from tests.support.nodes import message, part_of, until
from tests.support.shell import Shell

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]
PROJECT = "room"
STREAMS = SHARDS + 4  # of the registry, of snapshots, modules and hosts


class Site:
    """A cluster with a project, and its owner while all hosts are there."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, self._prepare)
        self.hosts = self.cluster.hosts
        self.owner = self.cluster.owner(self.project)

    def _prepare(self, host: Host) -> None:
        self.project: Any = host.create_project(PROJECT)
        self.applet: str = host.deploy(PROJECT, TALLY)["appletID"]
        self.publisher: Any = host.add_publisher(PROJECT, "sensor")

    def send(self, host: Host) -> None:
        until(
            lambda: host.send(PROJECT, message(self.publisher)).status == 201, "an event is handled"
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("hosts"))
    yield made
    made.cluster.stop()


def rows(host: Host) -> dict[str, Any]:
    """Return what a host reports about all hosts, by name."""
    return {row["name"]: row for row in host.call("GET", "/cluster").json["data"]}


def conditions(host: Host) -> dict[tuple[str, str], str]:
    """Return the health conditions of a host: details by part and state."""
    found = host.call("GET", "/health").json["data"]
    return {(each["part"], each["state"]): each["detail"] for each in found}


def await_condition(host: Host, part: str, state: str) -> str:
    """Wait for a condition; return its detail."""
    until(lambda: (part, state) in conditions(host), f"{part} has {state} on {host.name}")
    return conditions(host).get((part, state), "")


def await_well(site: Site, but: str = "") -> None:
    """Wait until no host has a condition of the cluster."""
    of_cluster = {
        health.HOST_SILENT,
        health.JOURNAL_STALLED,
        health.FENCED,
        health.ONE_MORE_LOSS,
        health.REGISTRY_BEHIND,
        health.CHAIN_BROKEN,
    } - {but}

    def is_well(host: Host) -> bool:
        return not of_cluster & {state for _, state in conditions(host)}

    until(lambda: all(map(is_well, site.hosts)), "all is well")


def await_facts(site: Site, host: Host) -> None:
    """Wait until a host has all facts about all others."""
    until(lambda: sum(r.get("streamsLed", 0) for r in rows(host).values()) == STREAMS, "all led")
    until(lambda: all("clockAheadS" in row for row in rows(host).values()), "clocks are known")
    until(lambda: rows(host)[site.owner.name]["running"] == 1, "the project runs there")


def check_facts(site: Site, host: Host) -> None:
    """Check what a host reports about all hosts."""
    for name, row in rows(host).items():
        assert row["version"], row
        assert row["streamsHeld"] == STREAMS, row
        assert row["load"] >= 0, row
        assert row["registryLag"] == 0, row
        assert row["me"] is (name == host.name)
        assert row["silentS"] < 1.5, row
        assert abs(row["clockAheadS"]) - row["clockErrorS"] < 0.5, row
    answer = host.call("GET", "/cluster").json
    assert answer["spare"] == 1
    assert answer["outlook"].startswith("One host may be lost")
    assert sum(row["changesRegistry"] for row in answer["data"]) == 1
    owned = host.call("GET", "/cluster/projects").json
    assert [(row["project"], row["host"]) for row in owned["data"]] == [(PROJECT, site.owner.name)]
    other = site.cluster.others(site.owner)[0].name
    assert host.call("GET", f"/cluster/projects?host={other}").json["total"] == 0


def await_silence(host: Host, other: str, seconds: float) -> None:
    """Wait until a host has measured that another host was silent for this long."""
    until(
        lambda: one(host, "host_silence_seconds", host=other) > seconds, "the silence is measured"
    )


def test_each_host_tells_what_all_of_them_do(site: Site, tmp_path: Path) -> None:
    for host in site.hosts:
        site.send(host)
    for host in site.hosts:
        await_facts(site, host)
        check_facts(site, host)
    other = site.cluster.others(site.owner)[0].name
    shell = Shell(tmp_path / "config", site.hosts[0])
    status = shell("cluster", "status")
    lines = status.stdout.decode().splitlines()
    assert lines[0].split() == [
        *("HOST", "ADDRESS", "STATE", "VERSION", "PROJECTS", "STREAMS", "LED/HELD", "LOAD", "LAG"),
        *("CLOCK", "SILENT", "FOR"),
    ]
    # They are in the order in which they have joined, and two did so at the same time.
    assert sorted(line.split()[0] for line in lines[1:]) == ["h1", "h2", "h3"]
    assert "this host" in lines[1]
    assert b"One host may be lost" in status.stderr
    assert json.loads(shell("--json", "cluster", "status").stdout)["total"] == 3
    assert f"{PROJECT} " in shell.text("cluster", "projects")
    assert f"{PROJECT} " not in shell.text("cluster", "projects", "--host", other)
    assert f"{PROJECT} moves to {other}" in shell.text("cluster", "pin", PROJECT, other)
    until(
        lambda: shell.text("cluster", "projects").split()[-2:] == [other, other],
        "its owner and its pin are shown",
    )
    assert "any host" in shell.text("cluster", "unpin", PROJECT)
    until(lambda: f"{PROJECT} " not in shell.text("cluster", "projects", "--host", other), "back")
    unknown = shell("cluster", "unpin", "nowhere", code=1)
    assert b"there is no project 'nowhere'" in unknown.stderr


def test_metrics_of_a_host_tell_what_it_appends_takes_over_and_passes_on(site: Site) -> None:
    sender = site.cluster.others(site.owner)[0]
    before = one(site.owner, "appends_total", result="stored")
    for _ in range(5):
        site.send(sender)
    until(
        lambda: one(site.owner, "appends_total", result="stored") >= before + 5, "they are stored"
    )
    assert one(site.owner, "append_duration_seconds_count") >= before + 5
    assert one(site.owner, "takeovers_total") >= 1
    assert one(site.owner, "replay_duration_seconds_count") >= 1
    assert one(site.owner, "tunnels") >= 1
    assert one(sender, "tunnel_bytes_total", direction="sent") > 0
    assert one(sender, "tunnel_bytes_total", direction="received") > 0
    positions = {one(host, "registry_position") for host in site.hosts}
    assert len(positions) == 1
    assert positions.pop() >= 1
    for host in site.hosts:
        assert one(host, "registry_lag") == 0
        assert one(host, "streams", state="held") == STREAMS
        assert one(host, "streams", state="stalled") == 0
        assert one(host, "stream_limit_bytes") == 1_000_000_000
        assert one(host, "hosts_spare") == 1
        for other in site.cluster.others(host):
            assert one(host, "host_silence_seconds", host=other.name) < 1.5
            assert abs(one(host, "host_clock_difference_seconds", host=other.name)) < 1
    assert sum(one(host, "streams", state="led") for host in site.hosts) == STREAMS


def test_a_dead_host_is_silent_and_the_next_loss_is_an_outage_which_a_second_one_makes(
    site: Site,
) -> None:
    first, second, third = site.hosts
    third.kill()
    for host in (first, second):
        detail = await_condition(host, "host:h3", health.HOST_SILENT)
        assert detail == "no heartbeat for more than 1.5 s"
        detail = await_condition(host, "cluster", health.ONE_MORE_LOSS)
        assert detail.startswith("Host h3 is silent. When one more host is lost")
        assert one(host, "hosts_spare") == 0
        assert one(host, "health_state", state="host_silent") == 1
        await_silence(host, "h3", 3)
    second.kill()
    detail = await_condition(first, "cluster", health.JOURNAL_STALLED)
    assert detail.startswith("Nothing is committed: 1 of 3 hosts is up, and 2 are needed.")
    until(lambda: ("cluster", health.ONE_MORE_LOSS) not in conditions(first), "only that is said")
    assert one(first, "hosts_spare") == -1
    second.start(ready=False)
    third.start(ready=False)
    site.cluster.await_up()
    await_well(site)
    site.send(first)


def test_a_host_that_is_stopped_is_told_as_such(site: Site) -> None:
    site.hosts[2].stop(signal.SIGTERM)
    detail = await_condition(site.hosts[0], "host:h3", health.HOST_SILENT)
    assert detail == "it was stopped"
    site.hosts[2].start(ready=False)
    site.cluster.await_up()
    await_well(site)


def test_a_host_that_was_paused_learns_that_it_was_replaced(site: Site) -> None:
    survivor = site.cluster.others(site.owner)[0]
    publisher = site.hosts[0].add_publisher(PROJECT, "second")
    with Senders(site.hosts, PROJECT, publisher) as senders:
        senders.await_more(50)
        site.owner.pause()
        try:
            await_condition(survivor, f"host:{site.owner.name}", health.HOST_SILENT)
            senders.await_more(50)
        finally:
            site.owner.go_on()
        await_condition(site.owner, "cluster", health.FENCED)
    assert one(site.owner, "appends_total", result="fenced") >= 1
    site.cluster.await_up()
    await_well(site, but=health.FENCED)  # shown for some minutes


def test_a_registry_that_does_not_follow_is_reported_by_its_host(site: Site) -> None:
    changing = next(name for name, row in rows(site.hosts[0]).items() if row["changesRegistry"])
    changer = next(host for host in site.hosts if host.name == changing)
    late = site.cluster.others(changer)[0]
    (registry,) = [pid for pid in late.processes() if part_of(pid) == "fb-registry"]
    os.kill(registry, signal.SIGSTOP)  # it is replaced after ten seconds
    thread = threading.Thread(target=changer.call, args=("POST", "/project", {"name": "later"}))
    thread.start()
    try:
        detail = await_condition(late, "registry", health.REGISTRY_BEHIND)
        assert detail == "changes that another host has and this host lacks: 1"
    finally:
        thread.join()
    await_well(site, but=health.FENCED)


def test_a_record_that_is_missing_keeps_the_project_from_a_host_that_would_lack_events(
    site: Site,
) -> None:
    for _ in range(3):
        site.send(site.owner)
    site.owner.count(PROJECT, site.applet)  # its store has all of them now
    connection = Connection(endpoint_in(site.owner.data / "run"), "test")
    subject = project_subject(int(site.project["projectID"]))
    found = last(connection, subject)
    assert found is not None
    # All records but the last one, as after a failure of the disks of two hosts.
    question = {"filter": subject.name, "seq": found[0]}
    assert connection.request(f"$JS.API.STREAM.PURGE.{subject.stream}", question, 5)["success"]
    connection.close()
    survivors = site.cluster.others(site.owner)
    site.owner.kill()
    part = f"project:{site.project['projectID']}"

    def is_broken() -> bool:
        # An event has the next owner take the project over.
        assert survivors[0].send(PROJECT, message(site.publisher)).status == 503
        return any((part, health.CHAIN_BROKEN) in conditions(host) for host in survivors)

    until(is_broken, "the missing records are noticed")
    site.owner.start(ready=False)
    site.cluster.await_up()
    site.send(site.owner)  # its own store has them all
