"""`fieldbrook usage` reports what takes disk space, and its limits; the limits hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core.settings import settings_fields
from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, StartNode, message, until
from tests.support.tools import LIMIT_S

COUNTER = Path(__file__).parents[2] / "examples" / "counter" / "counter.wat"
_TRAP = b"""
(module (memory (export "memory") 1)
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "start") (param i32) (result i32) unreachable))
"""


def run(data: Path, *flags: str, as_json: bool = True) -> subprocess.CompletedProcess[str]:
    options = ("--json",) if as_json else ()
    return subprocess.run(
        [sys.executable, "-m", "fieldbrook", *options, "usage", "--data", str(data), *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def measured(data: Path, *flags: str) -> Any:
    done = run(data, *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.thorough
def test_sizes_are_told_beside_a_node_that_runs_and_without_it(start_node: StartNode) -> None:
    node = start_node()
    node.create_project("room")
    node.deploy("room", COUNTER.read_bytes())
    publisher = node.add_publisher("room", "d")
    for _ in range(30):
        assert node.send("room", message(publisher, b"1")).status == 201

    def written() -> Any:
        found = measured(node.data)
        return found if found["projects"] and found["projects"][0]["parts"]["logs"] else None

    beside = until(written, "a checkpoint has written the store")
    node.stop()
    after = measured(node.data)
    for found in (beside, after):
        (project,) = found["projects"]
        assert project["name"] == "room"
        assert project["bytes"] == sum(project["parts"].values())
        assert all(project["parts"][kind] > 0 for kind in ("pairs", "history", "logs"))
        parts = {row["what"]: row["bytes"] for row in found["parts"]}
        assert parts["registry"] > parts["- audit log in it"] > 0
        assert parts["modules"] > 0
        assert found["freeBytes"] > 0
    text = run(node.data, as_json=False)
    assert "applet_log_bytes" in text.stdout
    assert "with 1 projects" in text.stderr


def test_every_limit_that_is_named_is_a_setting(tmp_path: Path, node: RunningNode) -> None:
    flags = ("--applet-log-bytes", "131072", "--project-map-bytes", "1048576")
    rows = measured(node.data, *flags)["parts"]
    names = {row["setting"] for row in rows if row["setting"]}
    assert names <= settings_fields().keys()
    assert {"history_bytes", "applet_log_bytes", "dead_letter_bytes", "audit_rows"} <= names
    limits = {row["what"]: row["limitBytes"] for row in rows}
    assert limits["applet log"] == 131_072
    assert limits["event history"] == 1_048_576 // 8, "an eighth of the store"


def test_a_damaged_store_is_named_and_the_others_are_measured(
    start_node: StartNode,
) -> None:
    node = start_node()
    for name in ("one", "two"):
        node.create_project(name)
        node.deploy(name, TALLY)
        publisher = node.add_publisher(name, "d")
        assert node.send(name, message(publisher, b"1")).status == 201
    node.stop()
    first, second = sorted((node.data / "projects").iterdir())
    os.truncate(first / "data.mdb", 8_192)
    problems = [row["problem"] for row in measured(node.data)["projects"]]
    assert sorted(map(bool, problems)) == [False, True]
    assert any(str(first) in problem for problem in problems)
    assert second.exists()


def test_a_folder_that_is_no_data_folder_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr


@pytest.mark.thorough
def test_dead_letters_and_logs_stay_within_their_settings(start_node: StartNode) -> None:
    node = start_node("--dead-letter-bytes", "65536", "--applet-log-bytes", "65536")
    node.create_project("room")
    node.deploy("room", _TRAP)
    publisher = node.add_publisher("room", "d")
    for _ in range(120):
        node.send("room", message(publisher, b"x" * 900))
    node.stop()
    (project,) = measured(node.data)["projects"]
    assert 0 < project["parts"]["deadLetters"] <= 65_536
    assert 0 < project["parts"]["logs"] <= 65_536
