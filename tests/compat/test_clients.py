"""Each client of the interface: its exact request, and the answer that it needs.

The request heads were recorded from the real clients (interface document, 8) if those could be run,
and otherwise built from their sources; real clients are run as processes below.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.compat.clients import PROJECT, WALLET, World, protobuf
from tests.support.nodes import PREFIX, StartNode, until
from tests.support.tools import LIMIT_S, npm_installed, require_tool

ROUTE = f"{PREFIX}/event/{PROJECT}"
CHANNEL = f"{WALLET}_{PROJECT}"


@pytest.fixture(scope="module")
def world(start_module_node: StartNode) -> World:
    return World(start_module_node)


# ---------------------------------------------------------------- early clients


def test_the_documented_curl_request(world: World) -> None:
    body = (
        '{"header":{"event_type":"MINT","pub_id":"my_publisher_id","pub_time":1666211451,'
        f'"token":"{world.token}"}},"payload":"VGhpcyBpcyB0aGUgbWVzc2FnZSBwYXlsb2FkCg=="}}'
    )
    answer = world.send(
        f"""POST {ROUTE} HTTP/1.1
        Host: 127.0.0.1:18990
        User-Agent: curl/7.88.1
        Accept: */*
        Content-Type: text/plain""",
        body.encode(),
    )
    assert answer.status == 201
    assert answer.json == {"results": [{"instanceID": world.instance_id, "code": 0, "errMsg": ""}]}
    assert world.last == b"This is the message payload\n"


def test_the_simulator_of_the_early_batch(world: World) -> None:
    """1.2: a payload that is a JSON object, and a bearer token beside the one in the header."""
    header = {
        "pub_id": "my_publisher_id",
        "token": world.token,
        "event_type": "MINT",
        "event_id": "8c6a1b3e",
        "pub_time": 1675000000000,
    }
    events = [{"header": header, "payload": {"data": {"temperature": 21}}}]
    answer = world.send(
        f"""POST {ROUTE} HTTP/1.1
        Accept: application/json, text/plain, */*
        Content-Type: application/json
        Authorization: Bearer {world.token}
        User-Agent: axios/1.2.2
        Accept-Encoding: gzip, compress, deflate, br
        Host: 127.0.0.1:8888
        Connection: keep-alive""",
        json.dumps({"events": events}).encode(),
    )
    assert answer.status == 201
    (item,) = answer.json
    assert item["wasmResults"] == [{"instanceID": world.instance_id, "code": 0, "errMsg": ""}]
    assert (item["projectName"], item["pubID"], item["eventID"]) == (
        PROJECT,
        world.publisher["publisherID"],
        "8c6a1b3e",
    )
    assert world.last == b'{"data":{"temperature":21}}'


@pytest.mark.parametrize("batch", [False, True])
def test_ios_of_may_2023(batch: bool, world: World) -> None:
    """The type `ANY`, which has no meaning: strategies of DEFAULT get it."""
    message = {
        "header": {
            "event_type": "ANY",
            "pub_id": "my_publisher_id",
            "token": world.token,
            "pub_time": 1683868814,
        },
        "payload": base64.b64encode(b'{"lat":1}').decode(),
    }
    answer = world.send(
        f"""POST {ROUTE} HTTP/1.1
        Host: 127.0.0.1:8888
        Content-Type: application/json
        Accept: */*
        User-Agent: App/1 CFNetwork/1404.0.5 Darwin/22.3.0
        Accept-Language: en-US,en;q=0.9
        Accept-Encoding: gzip, deflate
        Connection: keep-alive""",
        json.dumps({"events": [message]} if batch else message).encode(),
    )
    assert answer.status == 201
    results = answer.json[0]["wasmResults"] if batch else answer.json["results"]
    assert results[0]["code"] == 0
    assert world.last == b'{"lat":1}'


def test_mosquitto_publishes_the_documented_message_byte_by_byte(world: World) -> None:
    """CONNECT, one PUBLISH with QoS 0 and DISCONNECT in the bytes of mosquitto_pub 2.0."""
    payload = base64.b64encode(b"literal mqtt").decode()
    body = (
        '{"header":{"event_type":"MINT","pub_id":"my_publisher_id","pub_time":1667343986249,'
        f'"token":"{world.token}"}},"payload":"{payload}"}}'
    ).encode()
    rest = b"\x00\x09NftMinter" + body
    with socket.create_connection(
        ("127.0.0.1", world.node.mqtt_port), timeout=LIMIT_S
    ) as connection:
        connection.sendall(bytes.fromhex("100c00044d5154540402003c0000"))
        assert connection.recv(4) == bytes.fromhex("20020000")
        length = bytes([len(rest) % 128 | 0x80, len(rest) // 128])
        connection.sendall(b"\x30" + length + rest + bytes.fromhex("e000"))
    until(lambda: world.last == b"literal mqtt", "the message is handled")


# ---------------------------------------------------------------- later clients


def sent_raw(answer: Any, world: World, channel: str = PROJECT) -> None:
    """Check that the reply has all fields of Android's model."""
    assert answer.status == 201
    reply = answer.json
    assert (reply["channel"], reply["publisherID"]) == (channel, world.publisher["publisherID"])
    assert reply["eventID"]
    (result,) = reply["results"]
    assert result == {
        "appletName": "tally",
        "code": 0,
        "handler": "echo",
        "instanceID": world.instance_id,
        "returnValue": None,
    }


def test_android(world: World) -> None:
    body = b'{"deviceID":"a","temperature":22}'
    answer = world.send(
        f"""POST {PREFIX}/event/{CHANNEL}?eventType=ECHO&timestamp=1689000000000 HTTP/1.1
        Authorization: Bearer {world.token}
        Content-Type: application/json; charset=utf-8
        Host: 127.0.0.1:8889
        Connection: Keep-Alive
        Accept-Encoding: gzip
        User-Agent: okhttp/4.10.0""",
        body,
    )
    sent_raw(answer, world, CHANNEL)
    assert world.last == body


def test_ios_loses_its_query_and_sends_the_token_bare(world: World) -> None:
    body = b'{"deviceID":"i","data":{"header":1}}'
    answer = world.send(
        f"""POST {PREFIX}/event/{CHANNEL} HTTP/1.1
        Host: 127.0.0.1:8889
        Content-Type: application/octet-stream
        Authorization: {world.token}
        Accept: */*
        User-Agent: App/1 CFNetwork/1404.0.5 Darwin/22.3.0
        Connection: keep-alive""",
        body,
    )
    sent_raw(answer, world, CHANNEL)
    assert world.last == body


def test_arduino_takes_nothing_but_201(world: World) -> None:
    body = b'{"sensor":7}'
    request = (
        f"POST {ROUTE}?eventType=ECHO HTTP/1.1\r\nHost: 127.0.0.1:8888\r\n"
        "User-Agent: ESP32HTTPClient\r\nConnection: keep-alive\r\n"
        "Accept-Encoding: identity;q=1,chunked;q=0.1,*;q=0\r\n"
        f"Content-Type: application/json\r\nAuthorization: Bearer {world.token}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    with socket.create_connection(
        ("127.0.0.1", world.node.http_port), timeout=LIMIT_S
    ) as connection:
        for _ in range(3):  # it keeps the connection
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 201 ")
    assert world.last == body


def test_the_form_of_studio_with_its_alias_of_the_path(world: World) -> None:
    answer = world.send(
        f"""POST /api/w3bapp/event/{CHANNEL}?eventType=ECHO&timestamp=1689000000000 HTTP/1.1
        Host: 127.0.0.1:3000
        Authorization: {world.token}
        Content-Type: application/octet-stream
        Accept: application/json, text/plain, */*
        Origin: http://127.0.0.1:3000""",
        b"from the form",
    )
    sent_raw(answer, world, CHANNEL)
    assert world.last == b"from the form"


def test_the_early_variant_of_the_python_client(world: World) -> None:
    """The client also sends `device_id`, which has no meaning."""
    answer = world.send(
        f"""POST {ROUTE}?device_id=d&eventType=ECHO&timestamp=1686000000 HTTP/1.1
        Host: 127.0.0.1:8889
        User-Agent: python-requests/2.31.0
        Accept-Encoding: gzip, deflate
        Accept: */*
        Connection: keep-alive
        Authorization: Bearer {world.token}""",
        b"raw",
    )
    sent_raw(answer, world)
    assert world.last == b"raw"


def test_esp32_firmware_over_mqtt(world: World) -> None:
    """A signed inner message as the payload, in the sizes of the firmware's fixed arrays."""
    inner = b"\x08\x01\x10\x02\x1a\x05hello\x22\x40" + bytes(64) + b"\x2a\x41\x04" + bytes(64)
    body = protobuf(world.token, inner, "DEFAULT", pub_id="ESP32", event_id="ESP32")
    assert len(world.token) <= 159
    publish(world, PROJECT, body)
    until(lambda: world.last == inner, "the message is handled")


# ---------------------------------------------------------------- run as processes


def publish(world: World, topic: str, message: bytes) -> None:
    """Run mosquitto_pub, which reads the message from its standard input."""
    program, port = require_tool("mosquitto_pub"), str(world.node.mqtt_port)
    done = subprocess.run(
        [program, "-h", "127.0.0.1", "-p", port, "-t", topic, "-s"],
        input=message,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def curl(*arguments: str) -> tuple[int, Any]:
    """Run curl; return the status and the JSON that it printed."""
    done = subprocess.run(
        [require_tool("curl"), "-sS", "-w", "\n%{http_code}", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


def test_curl_sends_a_message_and_raw_bytes(world: World, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{world.node.http_port}{ROUTE}"
    message = {
        "header": {"event_type": "MINT", "pub_id": "my_publisher_id", "token": world.token},
        "payload": base64.b64encode(b"by curl").decode(),
    }
    assert curl("-d", json.dumps(message), url)[0] == 201
    assert world.last == b"by curl"
    file = tmp_path / "payload"
    file.write_bytes(bytes(range(256)))
    bearer = f"Authorization: Bearer {world.token}"
    status, reply = curl(
        *("-X", "POST", "-H", bearer, "--data-binary", f"@{file}"), f"{url}?eventType=ECHO"
    )
    assert (status, reply["results"][0]["code"]) == (201, 0)
    assert world.last == bytes(range(256))
    status, reply = curl("-d", "x", f"{url}?eventType=ECHO&authorization={world.token}")
    assert status == 201
    status, reply = curl("-d", "x", f"{url}?eventType=ECHO")
    assert (status, reply["key"]) == (401, "InvalidToken")


def test_curl_with_a_large_body_asks_before_it_sends(world: World, tmp_path: Path) -> None:
    """Over 1 MB curl sends `Expect: 100-continue`: Tornado answers it, not the fast path."""
    file = tmp_path / "payload"
    file.write_bytes(b"x" * ((1 << 20) - 1))
    bearer = f"Authorization: Bearer {world.token}"
    url = f"http://127.0.0.1:{world.node.http_port}{ROUTE}?eventType=ECHO"
    expect = ("-H", "Expect: 100-continue")
    assert curl("-H", bearer, *expect, "--data-binary", f"@{file}", url)[0] == 201
    assert len(world.last) == (1 << 20) - 1


def test_mosquitto_pub_sends_every_form(world: World) -> None:
    message = {
        "header": {"event_type": "MINT", "pub_id": "my_publisher_id", "token": world.token},
        "payload": base64.b64encode(b"json by mqtt").decode(),
    }
    publish(world, PROJECT, json.dumps(message).encode())
    until(lambda: world.last == b"json by mqtt", "the JSON message is handled")
    publish(world, PROJECT, protobuf(world.token, b"protobuf by mqtt"))
    until(lambda: world.last == b"protobuf by mqtt", "the protobuf message is handled")
    publish(world, f"{PROJECT}/push/{world.token}/ECHO", b"raw by mqtt")
    until(lambda: world.last == b"raw by mqtt", "the raw message is handled")


# ---------------------------------------------------------------- on behalf of devices


@pytest.fixture(scope="module")
def key(world: World) -> str:
    return world.access_key("gateway")


def pushed(answer: Any) -> None:
    assert answer.status == 201
    (item,) = answer.json
    assert (item["index"], item["results"][0]["code"]) == (0, 0)


def test_the_javascript_client(world: World, key: str) -> None:
    body = (
        b'[{"device_id":"device_001","event_type":"DEFAULT",'
        b'"payload":"{\\"temperature\\":25}","timestamp":1795233228152}]'
    )
    answer = world.send(
        f"""POST {PREFIX}/event/{CHANNEL}?eventType=DA-TA_PU-SH&timestamp=1795233228152 HTTP/1.1
        Accept: application/json, text/plain, */*
        Content-Type: application/json
        Authorization: Bearer {key}
        User-Agent: axios/1.21.1
        Accept-Encoding: gzip, compress, deflate, br
        Host: 127.0.0.1:18990
        Connection: keep-alive""",
        body,
    )
    pushed(answer)
    assert world.last == b'{"temperature":25}'


@pytest.mark.parametrize("agent", ["python-requests/2.34.2", "Go-http-client/1.1"])
def test_the_python_client_and_the_go_client(agent: str, world: World, key: str) -> None:
    """Seconds as time stamps, `application/octet-stream`."""
    body = (
        b'[{"device_id": "device_id", "event_type": "DEFAULT", "payload": "%b", '
        b'"timestamp": 1795233228}]' % agent.encode()
    )
    answer = world.send(
        f"""POST {PREFIX}/event/{CHANNEL}?eventType=DA-TA_PU-SH&timestamp=1795233228 HTTP/1.1
        Host: 127.0.0.1:18990
        User-Agent: {agent}
        Accept-Encoding: gzip, deflate
        Accept: */*
        Connection: keep-alive
        Authorization: Bearer {key}
        Content-Type: application/octet-stream""",
        body,
    )
    pushed(answer)
    assert world.last == agent.encode()


def test_the_http_simulator(world: World, key: str) -> None:
    """A signed reading of a device that is named by the hash of its public key."""
    device = "0x" + hashlib.sha3_256(b"public key").hexdigest()
    reading = {"data": {"temperature": 1}, "public_key": "04ab", "deviceId": device}
    payload = json.dumps(reading | {"signature": "3045"}, separators=(",", ":"))
    now = int(time.time() * 1000)
    item = {"device_id": device, "event_type": "DEFAULT", "payload": payload, "timestamp": now}
    answer = world.send(
        f"""POST {PREFIX}/event/{PROJECT}?eventType=DA-TA_PU-SH&timestamp={now} HTTP/1.1
        Accept: application/json, text/plain, */*
        Content-Type: application/json
        Authorization: Bearer {key}
        User-Agent: axios/1.21.1
        Host: 127.0.0.1:18990
        Connection: keep-alive""",
        json.dumps([item]).encode(),
    )
    pushed(answer)
    assert world.last == payload.encode()


JS = Path(__file__).parent / "js"


def javascript(url: str, key: str) -> list[Any]:
    """Run the real client; return the result of each of its calls."""
    npm_installed(JS)
    done = subprocess.run(
        [require_tool("node"), "publish.js", url, key],
        cwd=JS,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_real_javascript_client_publishes_one_event_and_many(world: World, key: str) -> None:
    before = world.count()
    url = f"http://127.0.0.1:{world.node.http_port}{PREFIX}/event/{CHANNEL}"
    single, many = javascript(url, key)
    assert single["status"] == 201
    assert single["data"][0]["results"][0]["handler"] == "echo"
    assert world.last == b'{"temperature":25}'
    assert [answer["status"] for answer in many] == [201] * 3
    assert sorted(answer["items"] for answer in many) == [50, 100, 100]
    assert world.count() == before + 250


def test_the_real_javascript_client_is_told_what_is_wrong(world: World) -> None:
    url = f"http://127.0.0.1:{world.node.http_port}{PREFIX}/event/{CHANNEL}"
    (refused,) = javascript(url, "w3b_MV8xNzAwMDAwMDAwX0FBQUFBQUFBQUFBQQ")
    assert (refused["status"], refused["data"]["key"]) == (404, "AccessKeyNotFound")
