"""The commands of the README's tour, typed into a shell as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nodes import RunningNode, StartNode
from tests.support.tools import require_tool

ROOT = Path(__file__).parents[2]


@pytest.fixture
def node(start_node: StartNode) -> RunningNode:
    return start_node(logged_in=False)


# A user types slower than a message is on its way.
HANDLED = "until fieldbrook logs room | grep -q count=2; do sleep 0.1; done"


def tour() -> str:
    """The commands of the README's section "A tour in ten lines"."""
    section = (ROOT / "README.md").read_text().split("## A tour in ten lines")[1]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found
    return found[1]


def test_the_tour_has_ten_commands() -> None:
    assert len(tour().strip().splitlines()) == 10


def test_the_tour_works_as_a_new_user_types_it(node: RunningNode, tmp_path: Path) -> None:
    for tool in ("curl", "mosquitto_pub"):
        require_tool(tool)
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "fieldbrook"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fieldbrook "$@"\n')
    command.chmod(0o755)
    # The test's node has other ports and another folder; nothing else is changed.
    script = (
        tour()
        .replace('"$PWD/data"', f'"{node.data}"')
        .replace(":8888", f":{node.http_port}")
        .replace("mosquitto_pub ", f"mosquitto_pub -p {node.mqtt_port} ")
        .replace("fieldbrook logs", f"{HANDLED}\nfieldbrook logs")
    )
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "FIELDBROOK_SERVER": f"http://127.0.0.1:{node.http_port}",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done
    assert '{"results":[{"instanceID":"' in done.stdout
    assert "count=1 payload=21.5" in done.stdout
    assert "count=2 payload=21.5" in done.stdout
    assert done.stdout.strip().endswith("2")
