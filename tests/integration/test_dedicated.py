"""Projects with a worker of their own: who may request one, and whether they get it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.metrics import one
from tests.support.nodes import RunningNode, StartNode, message, strategies, until
from tests.support.shell import Shell

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    return start_module_node("--workers", "2")


def room(node: RunningNode, name: str) -> tuple[Any, str]:
    """A project with the tally applet; gives its publisher and the id of the applet."""
    node.create_project(name)
    applet = node.deploy(name, TALLY, strategies=strategies(DEFAULT="start"))
    return node.add_publisher(name, "d"), applet["appletID"]


def health(node: RunningNode) -> Any:
    return node.call("GET", "/health", token=node.token).json


def worker_of(node: RunningNode, name: str) -> str:
    """Return the part name of the worker that runs a project; empty if there is none."""
    running = {row["project"]: row for row in health(node)["running"]}
    return str(running.get(name, {}).get("worker", ""))


def place(node: RunningNode, name: str, dedicated: bool, **more: Any) -> Any:
    return node.call("PUT", f"/project/x/{name}/worker", {"dedicated": dedicated}, **more)


def developer(node: RunningNode, name: str) -> tuple[str, str]:
    """A new account: its id, and its token."""
    body = {"username": name, "password": PASSWORD, "role": "DEVELOPER"}
    made = node.call("POST", "/register/admin", body)
    login = node.call("PUT", "/login", {"username": name, "password": PASSWORD})
    return made.json["accountID"], login.json["token"]


def test_a_running_project_moves_to_a_worker_of_its_own_and_back_without_losing_an_event(
    node: RunningNode,
) -> None:
    publisher, applet = room(node, "moving")
    assert node.send("moving", message(publisher)).status == 201
    assert worker_of(node, "moving") in ("worker:0", "worker:1")
    made = place(node, "moving", dedicated=True)
    assert made.json["dedicated"] is True
    own = f"worker:p{made.json['projectID']}"

    sent = 1
    for dedicated in (True, False):
        assert place(node, "moving", dedicated).status == 200

        def moved(dedicated: bool = dedicated) -> bool:
            nonlocal sent
            assert node.send("moving", message(publisher)).status == 201
            sent += 1
            return (worker_of(node, "moving") == own) is dedicated

        until(moved, "the project has moved")
        assert node.call("GET", "/project/moving").json["dedicated"] is dedicated
    until(lambda: node.count("moving", applet) >= sent, "every event is in the store")
    assert node.count("moving", applet) == sent
    until(lambda: own not in health(node)["parts"], "the worker of its own has ended")
    journal = node.data / "journal" / own.removeprefix("worker:")
    until(lambda: not journal.exists(), "its journal is removed")


def test_health_shows_the_workers_with_their_projects(node: RunningNode, tmp_path: Path) -> None:
    publisher, _ = room(node, "alone")
    place(node, "alone", dedicated=True)
    assert node.send("alone", message(publisher)).status == 201
    until(lambda: worker_of(node, "alone").startswith("worker:p"), "it runs in its own worker")
    rows = {row["part"]: row for row in health(node)["processes"]}
    own = rows[worker_of(node, "alone")]
    assert (own["project"], own["projects"], own["state"]) == ("alone", 1, "up")
    assert own["memoryBytes"] > 1 << 20
    assert {"worker:0", "worker:1"} <= rows.keys()
    assert not any(part.startswith("project") for part in rows)
    shown = Shell(tmp_path, node).text("health", "--processes")
    assert "worker:0" in shown
    assert "alone" in shown
    assert one(node, "up", part="worker:dedicated") >= 1
    assert one(node, "process_resident_memory_bytes", part="worker:dedicated") > 1 << 20


@pytest.mark.thorough
def test_a_dedicated_project_runs_in_its_own_worker_after_a_restart(start_node: StartNode) -> None:
    node = start_node("--workers", "1")
    publisher, _ = room(node, "room")
    place(node, "room", dedicated=True)
    node.stop()
    node.start()
    assert node.send("room", message(publisher)).status == 201
    assert worker_of(node, "room").startswith("worker:p")


@pytest.mark.thorough
def test_a_developer_needs_a_quota_for_a_dedicated_project(
    node: RunningNode, tmp_path: Path
) -> None:
    account_id, token = developer(node, "ada")
    assert node.call("POST", "/project", {"name": "wish"}, token=token).status == 201
    refused = place(node, "wish", dedicated=True, token=token)
    assert (refused.status, refused.json["key"]) == (403, "QuotaExceeded")
    assert "projects with a worker of their own" in refused.json["desc"]
    node.call(
        "PUT", f"/account/{account_id}/quota", {"quotas": [{"name": "dedicated", "limit": 1}]}
    )
    assert place(node, "wish", dedicated=True, token=token).status == 200
    # Its copy would be the second one.
    shell = Shell(tmp_path / "home", node)
    shell.environment["FIELDBROOK_TOKEN"] = token
    file = str(tmp_path / "wish.fieldbrook")
    shell("project", "export", "wish", file)
    made = shell.json("project", "import", file, "--name", "copy")
    assert made["dedicated"] is False
    assert "shares one here" in made["warnings"][0]
    assert shell.json("project", "update", "wish", "--shared")["dedicated"] is False
    assert shell.json("project", "update", "copy", "--dedicated")["dedicated"] is True
    assert "--dedicated" in shell.fails("project", "update", "copy", code=2)
