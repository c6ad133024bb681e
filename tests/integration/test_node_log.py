"""The node's settings and its log over the management interface, and with the command line."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, StartNode, message, parts, until
from tests.support.shell import Shell

_SECRETS = ("hunter22", "key-of-the-prover", "key-of-the-chain")


@pytest.fixture(scope="module")
def configured(
    start_module_node: StartNode, tmp_path_factory: pytest.TempPathFactory
) -> RunningNode:
    """A node with settings from all sources."""
    folder = tmp_path_factory.mktemp("settings")
    file = folder / "node.toml"
    file.write_text(
        'deadline_ms = 4000\nprover_url = "https://user:hunter22@prover.example:8443/key-of-the-prover"'
        '\n[[chains]]\nid = 4690\nname = "iotex-testnet"\n'
        'endpoint = "http://127.0.0.1:9/key-of-the-chain"\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIELDBROOK_MQTT_PASSWORD", "hunter22")
        patch.setenv("FIELDBROOK_LOG_LEVEL", "info")
        return start_module_node("--config", str(file), "--project-idle-s", "299")


def lines(node: RunningNode, query: str) -> list[dict[str, Any]]:
    answer = node.call("GET", f"/node_log?{query}")
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer.json["data"]
    return found


@pytest.mark.thorough
def test_each_setting_has_its_value_default_and_source_and_no_secret(
    configured: RunningNode,
) -> None:
    answer = configured.call("GET", "/setting")
    assert not any(secret in answer.body.decode() for secret in _SECRETS)
    assert answer.json["total"] == len(answer.json["data"])
    rows = {row["name"]: row for row in answer.json["data"]}

    def found(name: str) -> tuple[object, object, str]:
        row = rows[name]
        return row.get("value"), row.get("default"), row["source"]

    assert found("project_idle_s") == (299, 300, "option")
    assert found("data") == (str(configured.data), "data", "option")
    assert found("deadline_ms") == (4000, 5000, "file")
    assert found("log_level") == ("INFO", "INFO", "environment")
    assert found("memory_limit_bytes") == (64 << 20, 64 << 20, "default")
    assert found("mqtt_password") == ("set", None, "environment")
    assert found("chains") == ("set", None, "file")
    assert found("prover_url") == ("https://prover.example:8443", None, "file")
    assert found("postgres_dsn") == (None, None, "default")
    assert "Milliseconds" in rows["deadline_ms"]["description"]
    assert all(row["needsRestart"] for row in rows.values())


def test_lines_of_all_processes_are_there_and_no_secret(configured: RunningNode) -> None:
    (ready,) = lines(configured, "contains=listen%20on%20:&process=node")
    assert (ready["level"], ready["logger"]) == ("INFO", "fieldbrook.node.core")
    assert f"listen on :{configured.http_port}" in ready["text"]
    assert f"{ready['time']} INFO    fieldbrook.node.core: {ready['text']}" in configured.log
    assert "Actor System" not in configured.log, "a line of the library of actors"
    everything = configured.call("GET", "/node_log?after=-1000&limit=1000")
    named = {row["process"] for row in everything.json["data"]}
    assert {"node", "http:0", "mqtt:0", "chain:4690"} <= named
    assert not any(secret in everything.body.decode() for secret in _SECRETS)
    assert lines(configured, "contains=/node_log%20200") == []
    # New lines have a larger sequence than `next`, older lines a smaller one than the first line.
    end = everything.json["next"]
    assert all(row["sequence"] > end for row in lines(configured, f"after={end}"))
    first = everything.json["data"][0]["sequence"]
    older = configured.call("GET", f"/node_log?before={first}").json
    assert (older["data"], older["next"]) == ([], "")


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("limit=1001", "limit"),
        ("limit=0", "limit"),
        ("after=-1001", "after"),
        ("before=x", "before"),
        ("level=LOUD", "level"),
        ("contains=" + "x" * 257, "contains"),
        ("process=" + "x" * 257, "process"),
    ],
)
def test_a_bad_query_is_refused_by_name(configured: RunningNode, query: str, named: str) -> None:
    answer = configured.call("GET", f"/node_log?{query}")
    assert answer.status == 400
    assert [field["field"] for field in answer.json["fields"]] == [named]


@pytest.mark.parametrize("path", ["/setting", "/node_log"])
def test_only_administrators_may_ask(configured: RunningNode, path: str) -> None:
    person = {"username": f"u{path[1]}", "password": "correct horse"}
    assert configured.call("POST", "/register/admin", {**person, "role": "DEVELOPER"}).status == 201
    token = configured.call("PUT", "/login", person).json["token"]
    assert configured.call("GET", path, token=token).json["key"] == "NoAdminPermission"
    assert configured.call("GET", path, token="none").status == 401
    given = {"name": f"k{path[1]}", "expirationDays": 1}
    narrow = [{"name": "Project", "perm": "READONLY"}]
    wide = [{"name": "Account", "perm": "READONLY"}]
    for number, (grants, status) in enumerate(((narrow, 403), (wide, 200))):
        body = {**given, "name": f"{given['name']}{number}", "privileges": grants}
        key = configured.call("POST", "/account_access_key", body).json["accessKey"]
        assert configured.call("GET", path, token=key).status == status


def test_the_command_line_shows_both(configured: RunningNode, tmp_path: Path) -> None:
    shell = Shell(tmp_path / "config", configured)
    changed = shell.json("settings", "--changed", "idle")
    assert [(row["name"], row["value"], row["source"]) for row in changed] == [
        ("project_idle_s", 299, "option")
    ]
    table = shell.text("settings", "mqtt_password")
    assert "set" in table.split()
    assert "hunter22" not in table
    said = shell.text("node-log", "--contains", "listen on :", "--process", "node")
    assert said.rstrip().endswith(f"listen on :{configured.http_port} (127.0.0.1 only)")
    assert " INFO    node: fieldbrook.node.core: " in said
    row = json.loads(shell.text("node-log", "--tail", "1", "--json"))
    assert row["process"]
    assert shell.text("node-log", "--level", "critical") == ""


@pytest.mark.thorough
def test_lines_of_processes_that_were_killed_stay_also_those_of_a_node_restarted_as_a_whole(
    start_node: StartNode,
) -> None:
    node = start_node("--log-level", "DEBUG")
    node.create_project("room")
    node.deploy("room", TALLY)
    publisher = node.add_publisher("room", "d")
    assert node.send("room", message(publisher, b"x")).status == 201
    (process,) = (row for row in health(node) if row["part"] == "worker:0")
    os.kill(process["pid"], signal.SIGKILL)

    def died() -> list[dict[str, Any]]:
        return [
            row
            for row in lines(node, f"after=-1000&limit=1000&contains={process['part']}")
            if row["process"] == "supervisor" and "SIGKILL" in row["text"]
        ]

    until(died, "the supervisor tells of it")
    end = int(node.call("GET", "/node_log?after=-1").json["next"])
    (supervisor,) = (row for row in health(node) if row["part"] == "supervisor")
    os.kill(supervisor["pid"], signal.SIGKILL)

    def again() -> bool:
        try:
            return any(
                "listen on" in row["text"]
                for row in lines(node, f"after={end}&process=node&limit=1000")
            )
        except (AssertionError, OSError):
            return False

    until(again, "the node is back")
    after = lines(node, f"after={end}&level=ERROR&limit=1000")
    assert any(row["process"] == "node" and "supervisor died" in row["text"] for row in after)
    assert any("all parts of the node start again" in row["text"] for row in after)
    assert "Actor System gen" in node.log, "the library's own lines, for those who look for a fault"
    assert died()


def health(node: RunningNode) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.call("GET", "/health").json["processes"]
    return found


def test_each_line_is_an_object_where_the_format_is_json(start_node: StartNode) -> None:
    node = start_node("--log-format", "json")
    os.kill(parts(node)["fb-http:0"], signal.SIGKILL)
    until(lambda: '"level": "error"' in node.log or '"level": "warning"' in node.log, "it is told")
    node.stop()
    rows = [json.loads(line) for line in node.log.splitlines()]
    assert all({"time", "level", "logger", "process", "message"} <= set(row) for row in rows)
    assert any(f"listen on :{node.http_port}" in row["message"] for row in rows)
    assert len({row["process"] for row in rows}) > 1, "of several processes"
