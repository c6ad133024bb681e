"""The service file for systemd, and the node's part of systemd's protocol.

The tests act as systemd at the other end of the socket, because test machines run no systemd.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.node.core import CANNOT_START
from tests.support.nodes import RunningNode, part_of
from tests.support.tools import LIMIT_S, require_tool

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "fieldbrook.service"


def options(name: str) -> list[str]:
    """The values of an option in the service file."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    analyze = require_tool("systemd-analyze")
    unit = tmp_path / UNIT.name
    text = UNIT.read_text()
    unit.write_text(text.replace("/opt/fieldbrook/bin/fieldbrook", sys.executable))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=20", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout


def test_the_file_starts_the_program_that_knows_the_protocol() -> None:
    assert options("ExecStart") == ["/opt/fieldbrook/bin/fieldbrook node"]
    assert (options("Type"), options("NotifyAccess")) == (["notify"], ["main"])
    assert options("RestartPreventExitStatus") == [str(CANNOT_START)]
    guide = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    assert "install -m 0644 fieldbrook.service /etc/systemd/system/" in guide


class Manager:
    """The manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address[0] == "@" else address)
        self._socket.settimeout(LIMIT_S)

    def next(self) -> dict[str, str]:
        """Return the variables of the next message."""
        lines = self._socket.recv(4_096).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def await_variable(self, name: str) -> dict[str, str]:
        """Wait for the next message with this variable."""
        while name not in (message := self.next()):
            pass
        return message

    def drop(self) -> None:
        """Drop the messages that have arrived."""
        self._socket.setblocking(False)
        try:
            while True:
                self._socket.recv(4_096)
        except BlockingIOError:
            self._socket.settimeout(LIMIT_S)

    def is_silent_for(self, seconds: float) -> bool:
        """Drop the messages that have arrived; return whether none arrives in this number of
        seconds."""
        self.drop()
        self._socket.settimeout(seconds)
        try:
            self._socket.recv(4_096)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(LIMIT_S)
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["/", "@"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A socket with a path, and one of Linux without."""
    return str(tmp_path / "s") if request.param == "/" else f"@fieldbrook-test-{os.getpid()}"


@pytest.fixture
def manager(address: str) -> Iterator[Manager]:
    manager = Manager(address)
    yield manager
    manager.close()


def supervisor_of(node: RunningNode) -> int:
    (found,) = (pid for pid in node.processes() if part_of(pid) == "fb-root")
    return found


def test_the_node_says_when_it_serves_that_it_works_and_that_it_ends(
    tmp_path: Path, address: str, manager: Manager
) -> None:
    environment = {**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "4000000"}
    node = RunningNode(tmp_path / "n", command="node", ready=False, environment=environment)
    try:
        ready = manager.await_variable("READY")
        assert ready["STATUS"] == f"listens on port {node.http_port}"
        assert node.call("GET", "/readiness").status == 200
        began = time.monotonic()
        manager.drop()
        for _ in range(4):
            assert manager.next() == {"WATCHDOG": "1"}
        assert time.monotonic() - began > 1.5, "one each second"
        supervisor = supervisor_of(node)
        os.kill(supervisor, signal.SIGSTOP)
        try:
            time.sleep(1.5)  # an answer may have been on its way
            assert manager.is_silent_for(3.0), "nothing works without the supervisor"
        finally:
            os.kill(supervisor, signal.SIGCONT)
        assert manager.await_variable("WATCHDOG") == {"WATCHDOG": "1"}
        os.kill(supervisor, signal.SIGKILL)
        assert manager.await_variable("READY")["READY"] == "1", "all parts have started again"
        node.process.terminate()
        assert manager.await_variable("STOPPING")["STATUS"] == "stopping"
        assert node.process.wait(LIMIT_S) == 0
    finally:
        if node.process.poll() is None:
            node.kill()


def test_a_node_whose_watchdog_is_meant_for_another_process_gives_no_signs(
    tmp_path: Path, manager: Manager, address: str
) -> None:
    environment = {
        **os.environ,
        "NOTIFY_SOCKET": address,
        "WATCHDOG_USEC": "1000000",
        "WATCHDOG_PID": "1",
    }
    node = RunningNode(tmp_path / "n", command="node", environment=environment)
    try:
        manager.await_variable("READY")
        assert manager.is_silent_for(1.0)
    finally:
        node.stop(signal.SIGTERM)
