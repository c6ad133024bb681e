"""The node as `supervisor.conf` runs it, alone and as a client of mosquitto."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.applets import TALLY
from tests.support.brokers import Device
from tests.support.nodes import READY, RunningNode, message, until
from tests.support.tools import LIMIT_S, require_tool

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def installed(name: str) -> str:
    """Return the path of a program next to this Python, which the extra `test` installs, or
    elsewhere."""
    path = BIN / name
    return str(path) if path.exists() else require_tool(name)


class SupervisedNode(RunningNode):
    """A node under supervisord, from a copy of the files that `docker/start` needs."""

    brokers: tuple[str, ...] = ()

    def __init__(self, folder: Path, *brokers: str) -> None:
        self.brokers = brokers
        shutil.copytree(ROOT / "docker", folder / "docker")
        text = (ROOT / "supervisor.conf").read_text()
        for broker in brokers:
            begin = text.index(f";[program:{broker}]")
            end = text.find("\n\n", begin)
            text = text[:begin] + re.sub("^;", "", text[begin:end], flags=re.MULTILINE) + text[end:]
        (folder / "supervisor.conf").write_text(text)
        self._start = folder / "docker" / "start"
        super().__init__(folder / "data", ready=False)

    def start(self, *, ready: bool = True) -> None:
        variables = {
            "FIELDBROOK_DATA": self.data,
            "FIELDBROOK_BIND": "127.0.0.1",
            "FIELDBROOK_HTTP_PORT": self.http_port,
            "FIELDBROOK_DASHBOARD_PORT": self.dashboard_port,
            "FIELDBROOK_MQTT_PORT": self.mqtt_port,
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        if self.brokers:
            variables["FIELDBROOK_MQTT_BROKER"] = f"127.0.0.1:{self.mqtt_port}"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [str(self._start)],
                env={**os.environ, **{name: str(value) for name, value in variables.items()}},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        with self.killed_on_failure():
            until(lambda: READY in self.log or self.process.poll() is not None, "the node is ready")
        assert self.process.poll() is None, self.log


@contextmanager
def supervised(folder: Path, *brokers: str) -> Iterator[SupervisedNode]:
    """Run it until the end of the context."""
    installed("supervisord")
    node = SupervisedNode(folder, *brokers)
    try:
        node.log_in()
        yield node
    finally:
        node.stop(signal.SIGTERM)
        until(lambda: not node.processes()[1:], "everything has ended")


@pytest.mark.thorough
def test_the_node_is_the_only_program_and_handles_events(tmp_path: Path) -> None:
    with supervised(tmp_path) as node:
        assert counts(node) == 5
        until(lambda: status(node) == {"node": "RUNNING"}, "the program is seen to run")
        assert not (node.data / "secrets" / "mqtt-password").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mosquitto drops root's rights, and needs them here")
def test_mosquitto_is_a_program_of_the_file_and_the_node_its_client(tmp_path: Path) -> None:
    require_tool("mosquitto")
    tmp_path.chmod(0o755)
    with supervised(tmp_path, "mosquitto") as node:
        until(lambda: "connected to the broker" in node.log, "the node is connected")
        assert counts(node) == 5
        both = {"node": "RUNNING", "mosquitto": "RUNNING"}
        until(lambda: status(node) == both, "both programs are seen to run")
        with pytest.raises(ConnectionRefusedError):
            Device(node.mqtt_port, "thief", "fieldbrook", "another password")


def counts(node: RunningNode) -> int:
    """Send five messages over MQTT; return how many are handled."""
    node.create_project("p")
    applet = node.deploy("p", TALLY)["appletID"]
    publisher = node.add_publisher("p", "device")
    body = json.dumps(message(publisher)).encode()

    def handled() -> bool:
        with Device(node.mqtt_port, "device") as device:
            device.publish("p", body)
        return node.count("p", applet) > 0

    # The node subscribes to the project's topics a moment after the project exists.
    until(handled, "the first message is handled")
    before = node.count("p", applet)
    with Device(node.mqtt_port, "device") as device:
        for _ in range(5):
            device.publish("p", body)
    until(lambda: node.count("p", applet) >= before + 5, "all messages are handled")
    return node.count("p", applet) - before


def status(node: SupervisedNode) -> dict[str, str]:
    """Return the states that supervisord reports of its programs."""
    command = [installed("supervisorctl"), "-s", f"unix://{node.data}/supervisor.sock", "status"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}
