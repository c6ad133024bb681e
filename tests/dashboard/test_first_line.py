"""What `fieldbrook up` prints at a terminal once it is ready."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.nodes import StartNode, until
from tests.support.tools import LIMIT_S, free_port


def read_block(terminal: int) -> dict[str, str]:
    """The lines at a terminal up to the last one of the block, by their first words."""
    shown = b""
    while not re.search(rb"^stop .*\r\n", shown, re.MULTILINE):
        shown += os.read(terminal, 4_096)
    pairs = (line.split(maxsplit=1) for line in shown.decode().splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def up_at_a_terminal(
    data: Path, port: int, run: Callable[[dict[str, str]], None] = lambda block: None
) -> dict[str, str]:
    """Start a node at a terminal, call `run` with the block that it prints, and stop the node."""
    terminal, inside = os.openpty()
    ports = ("--http-port", str(free_port()), "--mqtt-port", str(free_port()))
    command = [sys.executable, "-m", "fieldbrook", "up", "--data", str(data), *ports]
    process = subprocess.Popen(
        [*command, "--dashboard-port", str(port), "--bind", "127.0.0.1"],
        stdin=subprocess.DEVNULL,
        stdout=inside,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(inside)
    try:
        block = read_block(terminal)
        run(block)
        return block
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)
        os.close(terminal)


def create_administrator(block: dict[str, str]) -> None:
    """Run the command of the block, as it is."""
    done = subprocess.run(
        ["sh", "-c", f"{block['next']} --password -"],
        input="correct horse\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_a_terminal_shows_where_the_node_is_and_a_command_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    data, port = tmp_path / "data", free_port()
    block = up_at_a_terminal(data, port, create_administrator)
    code = (data / "secrets" / "setup-code").read_text().strip()
    assert block["dashboard"] == f"http://localhost:{port}/setup  (setup code: {code})"
    assert block["data"] == str(data)
    assert re.fullmatch(r"http://localhost:\d+  mqtt://localhost:\d+", block["events"])
    assert " admin create --server http://localhost:" in block["next"]
    later = up_at_a_terminal(data, port)
    assert later["dashboard"] == f"http://localhost:{port}"
    assert " project list --server http://localhost:" in later["next"]


def test_a_log_names_the_file_of_the_setup_code_and_not_the_code(start_node: StartNode) -> None:
    node = start_node(logged_in=False)
    path = node.data / "secrets" / "setup-code"
    server = f"http://localhost:{node.http_port}"
    told = f" admin create --server {server}`; the setup code is in {path}"
    until(lambda: told in node.log, "the log names the file")
    assert path.read_text().strip() not in node.log
    ports = f"http://localhost:{node.http_port}, mqtt://localhost:{node.mqtt_port}"
    until(lambda: f"events: {ports}; data: {node.data}" in node.log, "the log names the ports")
