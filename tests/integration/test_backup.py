"""Backup of a running node: the copy opens, has every acknowledged event, and sends nothing by
itself."""

from __future__ import annotations

import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.faults.applet import counter
from tests.faults.harness import counts
from tests.faults.ledger import Ledger
from tests.faults.loads import HttpBatches, HttpSingles, Load, Target
from tests.support.applets import SENDER
from tests.support.brokers import Subscriber
from tests.support.nodes import RunningNode, StartNode, message, strategies, until
from tests.support.shell import Shell

# Many processes are started, which takes a minute with a fifth of a core.
pytestmark = pytest.mark.timeout(240)

EVENTS = 300


@pytest.fixture
def node(start_node: StartNode) -> RunningNode:
    return start_node()


@pytest.fixture
def shell(node: RunningNode, tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home", node, logged_in=False)


def test_everything_acknowledged_before_a_backup_under_load_began_is_in_it(
    node: RunningNode, shell: Shell, tmp_path: Path
) -> None:
    project_id = int(node.create_project("busy")["projectID"])
    applet_id = int(node.deploy("busy", counter(1))["appletID"])
    target = Target(node.http_port, "busy", node.add_publisher("busy", "d"))
    ledger = Ledger()
    loads: list[Load] = [HttpSingles(ledger, target, n, 0.002) for n in range(3)]
    loads.append(HttpBatches(ledger, target, 0, 0.01))
    for load in loads:
        load.start()
    churning = threading.Event()
    churn = threading.Thread(target=_churn, args=(node, churning))
    churn.start()
    try:
        until(lambda: ledger.count > EVENTS, "events are acknowledged")
        before = ledger.names_acknowledged()
        archive = tmp_path / "b.tar.gz"
        made = shell.json("--data", str(node.data), "backup", str(archive))
        assert ledger.count > len(before), "nothing was acknowledged during the backup"
        for load in loads:
            assert load.rest()
            load.end()
    finally:
        churning.set()
        churn.join()
    assert made["projects"] >= 1
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert shell.json("verify", str(archive))["defects"] == []
    copy = tmp_path / "c"
    assert shell.json("restore", str(archive), "--data", str(copy))["defects"] == []
    opened = RunningNode(copy)
    try:
        opened.token = node.token
        known = counts(copy, project_id, applet_id, "")
        assert not before - known.keys()
        assert all(count == 1 for count in known.values())
        event = message(target.publisher, b"afterwards")
        assert opened.send("busy", event).status == 201
        assert opened.kv("busy", str(applet_id), b"afterwards")[:1] == b"\1"
    finally:
        opened.stop()


def _churn(node: RunningNode, ended: threading.Event) -> None:
    """Create and remove projects and modules."""
    number = 0
    while not ended.is_set():
        number += 1
        name = f"p{number}"
        node.create_project(name)
        node.deploy(name, counter(number % 7 + 2))
        publisher = node.add_publisher(name, "d")
        node.send(name, message(publisher, b"x"))
        assert node.call("DELETE", f"/project/{name}").status in (200, 204)
        for row in node.call("GET", "/resource").json["data"]:
            node.call("DELETE", f"/resource/{row['resourceID']}")


@pytest.mark.thorough
def test_a_restored_node_holds_undelivered_messages_until_they_are_released(
    node: RunningNode, shell: Shell, tmp_path: Path
) -> None:
    node.create_project("sender")
    node.deploy("sender", SENDER, strategies=strategies(PUBLISH="publish"))
    publisher = node.add_publisher("sender", "d")
    archive = tmp_path / "b.tar.gz"
    shell("--data", str(node.data), "backup", str(archive))
    node.stop()
    copy = tmp_path / "c"
    shell("restore", str(archive), "--data", str(copy))
    opened = RunningNode(copy)
    try:
        assert opened.send("sender", message(publisher, b"21.5", "PUBLISH")).status == 201
        shown = shell.json("outbox", "status", "--data", str(copy))
        assert shown == {"parked": True, "waiting": [{"project": "sender", "entries": 1}]}
        assert "parked" in opened.log
        opened.stop()
        opened.start()  # a restart releases nothing
        opened.log_in()
        subscriber = Subscriber(opened, "out/#")
        assert shell.json("outbox", "status", "--data", str(copy))["waiting"]
        assert shell.json("outbox", "release", "--data", str(copy)) == {"released": True}
        until(lambda: subscriber.received("out/readings") == ["21.5"], "the message arrives")
        subscriber.close()
        until(
            lambda: not shell.json("outbox", "status", "--data", str(copy))["waiting"],
            "the outbox is empty",
        )
        assert shell.json("outbox", "release", "--data", str(copy)) == {"released": False}
    finally:
        opened.stop()


@pytest.mark.thorough
def test_a_folder_gets_a_backup_named_by_the_time_and_nothing_is_written_over(
    node: RunningNode, shell: Shell, tmp_path: Path
) -> None:
    folder = tmp_path / "copies"
    folder.mkdir()
    made: Any = shell.json("--data", str(node.data), "backup", str(folder))
    (archive,) = folder.iterdir()
    assert made["file"] == str(archive)
    said = shell.fails("--data", str(node.data), "backup", str(archive))
    assert "exists already" in said
    assert "not empty" in shell.fails("restore", str(archive), "--data", str(node.data))
    assert "inside the data folder" in shell.fails(
        "--data", str(node.data), "backup", str(node.data / "b.tar.gz")
    )
    assert [path.name for path in folder.iterdir()] == [archive.name]


def test_an_unfinished_restore_is_no_data_of_a_node(tmp_path: Path) -> None:
    data = tmp_path / "n"
    (data / ".restoring").mkdir(parents=True)
    node = RunningNode(data, ready=False)
    try:
        until(lambda: node.process.poll() is not None, "the node ends")
    finally:
        node.stop()
    assert "a restore did not finish" in node.log
    assert not list((data / ".restoring").iterdir())
