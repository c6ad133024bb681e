"""What `fieldbrook up` says about the dashboard once it is ready."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nodes import RunningNode, until
from tests.support.tools import LIMIT_S, free_port


def read_line(terminal: int, start: bytes) -> str:
    """The first line at a terminal that begins with these bytes."""
    shown = b""
    while not re.search(rb"^" + start + rb".*\r\n", shown, re.MULTILINE):
        shown += os.read(terminal, 4_096)
    match = re.search(rb"^" + start + rb"[^\r]*", shown, re.MULTILINE)
    assert match is not None
    return match[0].decode()


def up_at_a_terminal(data: Path, port: int) -> str:
    """Start a node at a terminal and stop it; returns its line about the dashboard."""
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
        return read_line(terminal, b"dashboard")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)
        os.close(terminal)


@pytest.mark.thorough
def test_a_terminal_shows_the_setup_code_until_there_is_an_administrator(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    line = up_at_a_terminal(data, port)
    code = (data / "secrets" / "setup-code").read_text().strip()
    assert line == f"dashboard  http://localhost:{port}/setup  (setup code: {code})"
    node = RunningNode(data)
    node.log_in()
    node.stop()
    assert up_at_a_terminal(data, port) == f"dashboard  http://localhost:{port}"


def test_a_log_names_the_file_of_the_setup_code_and_not_the_code(node: RunningNode) -> None:
    path = node.data / "secrets" / "setup-code"
    told = f"/setup or run `fieldbrook admin create`; the setup code is in {path}"
    until(lambda: told in node.log, "the log names the file")
    assert path.read_text().strip() not in node.log
