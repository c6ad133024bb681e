"""The example that mints a token for each report: its scripts, a real node and a real chain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chain.evm import Evm
from tests.support.nodes import RunningNode, StartNode
from tests.support.tools import require_tool

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "device-token"


@pytest.fixture
def evm() -> Iterator[Evm]:
    chain = Evm()
    yield chain
    chain.stop()


@pytest.fixture
def node(start_node: StartNode, tmp_path: Path, evm: Evm) -> RunningNode:
    config = tmp_path / "fieldbrook.toml"
    config.write_text(
        f'[[chains]]\nid = {evm.chain_id}\nname = "dev"\nendpoint = "{evm.url}"\npoll_ms = 50\n'
    )
    return start_node("--config", str(config))


@pytest.mark.thorough
def test_a_device_reports_a_token_is_minted_and_a_second_handler_hears_of_it(
    node: RunningNode, evm: Evm, tmp_path: Path
) -> None:
    for tool in ("bash", "curl", "mosquitto_pub", "openssl", "clang", "wasm-ld"):
        require_tool(tool)
    # A copy, so that what the script builds does not stay in the source.
    copied = tmp_path / "examples"
    subprocess.run(["cp", "-R", str(EXAMPLES), str(copied)], check=True)
    environment = {
        **os.environ,
        "XDG_CONFIG_HOME": str(tmp_path),
        "PYTHONPATH": str(EXAMPLES.parent),
        "CHAIN_RPC": evm.url,
        "FIELDBROOK_SERVER": f"http://127.0.0.1:{node.http_port}",
        "FIELDBROOK_MQTT": f"127.0.0.1:{node.mqtt_port}",
        "FIELDBROOK_TOKEN": node.token,
        "FIELDBROOK_COMMAND": f"{sys.executable} -m fieldbrook",
    }
    for credited in ("2", "4"):  # it can be run again
        done = subprocess.run(
            ["bash", str(copied / "device-token" / "run.sh")],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        lines = [line for line in done.stdout.splitlines() if line]
        codes = [json.loads(line)["results"][0]["code"] for line in lines if line[0] == "{"]
        assert codes == [0, 1, 11]
        assert lines[-1] == credited


def test_the_contract_that_is_kept_is_what_its_source_compiles_to(tmp_path: Path) -> None:
    folder = tmp_path / "token"
    subprocess.run(["cp", "-R", str(EXAMPLE), str(folder)], check=True)
    options = ["--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
    installing = [require_tool("npm"), "ci", *options]
    subprocess.run(installing, cwd=folder, check=True, timeout=100)
    (folder / "DeviceToken.json").unlink()
    subprocess.run([require_tool("node"), "compile.js"], cwd=folder, check=True, timeout=60)
    assert (folder / "DeviceToken.json").read_text() == (EXAMPLE / "DeviceToken.json").read_text()
