"""Hostile JSON (huge numbers, broken text, deep nesting) is refused by every route without an
error."""

from __future__ import annotations

import base64
import http.client
import json
import re
import time
from collections.abc import Iterator

import msgspec
import pytest

from fieldbrook.gateway.management.route_table import ROUTES
from tests import bombs
from tests.support.nodes import PREFIX, RunningNode, StartNode, message, parts
from tests.support.tools import LIMIT_S

pytestmark = pytest.mark.timeout(240)

VALUES = {
    "a million digits": "1" * 1_000_000,
    "a million decimals": "0." + "1" * 900_000,
    "an exponent": "1e400",
    "a large exponent": "1e999999999",
    "not a number": "NaN",
    "infinity": "-Infinity",
    "a fraction": "1.5",
    "65 bits": str(1 << 64),
    "63 bits": str(1 << 63),
    "negative": "-1",
    "half a pair": '"\\ud800"',
    "deep": "[" * 400_000,
    "deep objects": '{"a":' * 150_000,
    "many values": "[" + "[]," * 300_000 + "[]]",
    "digits as a text": '"' + "9" * 500_000 + '"',
}
GROWTH_BYTES = 160 << 20


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    made = start_module_node()
    made.create_project("room")
    return made


def bodies(names: list[str]) -> Iterator[tuple[str, bytes]]:
    for what, value in VALUES.items():
        yield what, value.encode()
        if len(value) < 100:
            given = ",".join(f'"{name}":{value}' for name in names)
        else:
            given = f'"{names[0]}":{value}' if names else ""
        yield f"{what} in all fields", b"{" + given.encode() + b"}"
    for name in names[:1]:
        yield "the same key often", ("{" + f'"{name}":1,' * 50_000 + f'"{name}":1}}').encode()


@pytest.mark.thorough
def test_no_management_route_fails_over_a_body_that_is_no_sensible_json(node: RunningNode) -> None:
    gateway = parts(node)["fb-http:0"]
    before = bombs.peak_bytes(gateway)
    headers = {"Authorization": f"Bearer {node.token}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=LIMIT_S)
    seen = 0
    for route in ROUTES:
        if route.body is None or route.upload:
            continue
        path = "/" + "/".join(route.segments)
        path = re.sub(r"\{\w*[nN]ame\}", "room", path)
        path = PREFIX + re.sub(r"\{\w+\}", "1", path)
        names = [field.encode_name for field in msgspec.structs.fields(route.body)]
        for what, body in bodies(names):
            connection.request(route.method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status < 500, (route.operation, what, text[:300])
            assert len(text) < 100_000, (route.operation, what)
            seen += 1
    connection.close()
    assert seen > 500
    assert parts(node)["fb-http:0"] == gateway
    assert bombs.peak_bytes(gateway) - before < GROWTH_BYTES


@pytest.mark.thorough
def test_no_event_fails_over_numbers_that_are_none(node: RunningNode) -> None:
    publisher = node.add_publisher("room", "p")
    plain = message(publisher)
    for what, value in VALUES.items():
        for field in ("pub_time", "event_type", "event_id", "pub_id"):
            header = json.dumps({**plain["header"], field: "?"}).replace('"?"', value)
            event = '{"header":' + header + ',"payload":"' + base64.b64encode(b"x").decode() + '"}'
            for body in (event, f'{{"events":[{event}]}}', f"[{event}]"):
                began = time.monotonic()
                answer = node.call("POST", "/event/room", body.encode(), token="")
                assert answer.status < 500, (what, field, answer)
                assert time.monotonic() - began < LIMIT_S / 4
        pushed = f'[{{"device_id":"d","payload":"x","timestamp":{value}}}]'.encode()
        answer = node.call("POST", "/event/room", pushed, token=publisher["token"])
        assert answer.status < 500, (what, answer)
