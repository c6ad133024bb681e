"""The embedded broker on a disk that is full, and has room again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.applets import TALLY
from tests.integration.brokers import Device
from tests.integration.nodes import RunningNode, message, until
from tests.tools import require_tool

_MIB = 1 << 20
_LIMIT_S = 90.0


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data folder whose broker has a small file system of its own."""
    require_tool("mount")
    folder = tmp_path / "n"
    store = folder / "broker" / "store"
    store.mkdir(parents=True)
    if os.getuid() != 0:
        pytest.skip("only root can mount a file system")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(store)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(store)], check=True)


@pytest.mark.timeout(400)
def test_a_broker_whose_disk_was_full_is_named_and_goes_on_when_there_is_room(data: Path) -> None:
    node = RunningNode(data)
    try:
        node.log_in()
        node.create_project("p")
        rules = [{"eventType": "DEFAULT", "handler": "quiet"}]
        applet_id = node.deploy("p", TALLY, strategies=rules)["appletID"]
        event = json.dumps(message(node.add_publisher("p", "d"))).encode()
        with Device(node.mqtt_port, "d") as device:
            device.publish("p", event)
            until(lambda: node.count("p", applet_id) == 1, "the first event")
        ballast = data / "broker" / "store" / "ballast"
        with contextlib.suppress(OSError):
            ballast.write_bytes(bytes(64 * _MIB))
        with contextlib.suppress(OSError), Device(node.mqtt_port, "d", limit_s=1) as device:
            device.publish("p", event)  # nobody says that it was stored

        def broker() -> str:
            body: dict[str, str] = node.call("GET", "/liveness").json
            return body["Broker"]

        until(lambda: broker().startswith("broker_full"), "the trouble", _LIMIT_S)
        assert node.call("GET", "/readiness").status == 200, "HTTP goes on"
        assert "it was ended" not in node.log, "before there is room that would not help"
        ballast.unlink()

        def stored() -> bool:
            # One who waits longer only looks later whether the broker was started again.
            with contextlib.suppress(OSError), Device(node.mqtt_port, "d", limit_s=5) as device:
                device.publish("p", event)
                return True
            return False

        before = node.count("p", applet_id)
        until(stored, "the broker takes messages again", _LIMIT_S)
        until(lambda: node.count("p", applet_id) > before, "and they are handled", _LIMIT_S)
        until(lambda: broker() == "ok", "the trouble has ended", _LIMIT_S)
    finally:
        node.stop()
