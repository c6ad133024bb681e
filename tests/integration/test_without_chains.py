"""A node without the libraries for chains, like a plain installation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, message
from tests.support.tools import LIMIT_S

LIBRARIES = ("aiohttp", "eth_abi", "eth_account", "web3")
CHAINS = '[{"id": 1, "name": "dev", "endpoint": "http://127.0.0.1:9"}]'


@pytest.fixture
def plain(tmp_path: Path) -> Mapping[str, str]:
    """An environment in which Python finds none of the libraries."""
    folder = tmp_path / "plain"
    folder.mkdir()
    hide = f"import sys\nfor name in {LIBRARIES!r}:\n    sys.modules[name] = None\n"
    (folder / "sitecustomize.py").write_text(hide)
    return {**os.environ, "PYTHONPATH": str(folder)}


def run(plain: Mapping[str, str], *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fieldbrook", *words],
        env={**plain, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def test_a_node_without_chains_handles_events(plain: Mapping[str, str], tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "n", environment=plain)
    try:
        node.log_in()
        node.create_project("room")
        applet_id = node.deploy("room", TALLY)["appletID"]
        publisher = node.add_publisher("room", "d")
        assert node.send("room", message(publisher, b"1")).status == 201
        assert node.count("room", applet_id) == 1
        assert node.call("GET", "/health").json["healthy"] is True
    finally:
        node.stop()


def test_settings_with_chains_say_what_to_install(plain: Mapping[str, str], tmp_path: Path) -> None:
    done = run(plain, "up", "--data", str(tmp_path / "n"), FIELDBROOK_CHAINS=CHAINS)
    assert done.returncode == 2
    assert "pip install 'fieldbrook[chains]'" in done.stderr


def test_commands_on_chains_say_what_to_install(plain: Mapping[str, str]) -> None:
    done = run(plain, "chain", "doctor", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "pip install 'fieldbrook[chains]'" in done.stderr
    assert run(plain, "chain", "networks").returncode == 0
