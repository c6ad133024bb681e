"""What one project cannot take over MQTT does not keep the others from theirs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.applets import TALLY
from tests.integration.brokers import Device
from tests.integration.nodes import RunningNode, message, until

STRATEGIES = [{"eventType": name.upper(), "handler": name} for name in ("echo", "quiet")]
LIMIT_BYTES = 1 << 20


def test_messages_for_a_project_with_a_full_store_leave_room_for_another_project(
    tmp_path: Path,
) -> None:
    flags = ("--project-map-bytes", str(LIMIT_BYTES), "--body-limit-bytes", str(2 << 20))
    node = RunningNode(tmp_path / "n", *flags)
    try:
        node.log_in()
        publishers, applets = {}, {}
        for name in ("full", "other"):
            node.create_project(name)
            applets[name] = node.deploy(name, TALLY, strategies=STRATEGIES)["appletID"]
            publishers[name] = node.add_publisher(name, "d")
        # While one is kept in 1 MiB, another does not fit: it is refused, and tried again.
        large = json.dumps(message(publishers["full"], b"x" * 900_000, "ECHO")).encode()
        small = json.dumps(message(publishers["other"], b"x", "QUIET")).encode()
        with Device(node.mqtt_port, "d") as device:
            for _ in range(60):  # more bytes than the gateway holds for all projects
                device.publish("full", large)
            for _ in range(20):
                device.publish("other", small)
            until(
                lambda: node.count("other", applets["other"]) == 20,
                "the other project's events",
                30,
            )
    finally:
        node.stop()
