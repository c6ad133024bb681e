"""A project's store at its size limit: acknowledged events stay, refused events come later."""

from __future__ import annotations

import json
from pathlib import Path

from fieldbrook.gateway.mqtt.protocol.packets import PubAck, Publish
from tests.faults.applet import counter
from tests.faults.harness import PROJECT, counts
from tests.support.mqtt_client import MqttClient
from tests.support.nodes import RunningNode, StartNode, message, until

_MIB = 1 << 20
_VALUE = 16_384
_REFUSALS = 10


def named(publisher: object, name: str) -> dict[str, object]:
    return message(publisher, name.encode())


def test_what_was_acknowledged_before_the_store_was_full_is_there_and_the_rest_comes_later(
    start_node: StartNode,
    tmp_path: Path,
) -> None:
    node = RunningNode(tmp_path / "n", "--project-map-bytes", str(2 * _MIB))
    acknowledged: set[str] = set()
    try:
        node.log_in()
        project_id = int(node.create_project(PROJECT)["projectID"])
        applet_id = int(node.deploy(PROJECT, counter(1, _VALUE))["appletID"])
        publisher = node.add_publisher(PROJECT, "d")
        refused: list[str] = []
        for number in range(2 * _MIB // _VALUE * 2):
            name = f"http-{number:06}"
            status = node.send(PROJECT, named(publisher, name)).status
            if status == 201:
                acknowledged.add(name)
            else:
                assert status == 507, status  # the store: nothing was taken
                refused.append(name)
            if len(refused) == _REFUSALS:
                break
        assert len(refused) == _REFUSALS
        assert acknowledged <= counts(node.data, project_id, applet_id).keys()
        waiting = {f"mqtt-{number}" for number in range(5)}
        # A device keeps what has no acknowledgement, and sends it again.
        packets = [
            Publish(PROJECT, json.dumps(named(publisher, name)).encode(), 1, packet_id=number)
            for number, name in enumerate(sorted(waiting), 1)
        ]
        with MqttClient(node.mqtt_port) as device:
            device.connect()
            device.send(*packets)
            assert node.call("GET", "/liveness").status == 200
        assert node.call("GET", f"/kv/{PROJECT}?appletID={applet_id}").status == 200
    finally:
        node.stop()
    raised = start_node("--project-map-bytes", str(64 * _MIB), logged_in=False)
    with MqttClient(raised.mqtt_port) as device:
        device.connect()
        device.send(*packets)
        assert [device.expect(PubAck).code for _ in packets] == [0] * len(packets)
    for name in refused:
        assert raised.send(PROJECT, named(publisher, name)).status == 201
    expected = acknowledged | waiting | set(refused)
    until(
        lambda: expected <= counts(raised.data, project_id, applet_id).keys(),
        "what waited at the device is handled",
    )
    seen = counts(raised.data, project_id, applet_id)
    assert {seen[name] for name in expected} == {1}
