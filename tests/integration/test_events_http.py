"""Events over HTTP: the answers to good and bad requests, and the life of a project."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.support.applets import TALLY
from tests.support.nodes import PREFIX, StartNode, flood, message, parts, strategies, until
from tests.support.tools import LIMIT_S

KEYS = {"key", "code", "msg", "desc", "canBeTalk", "id", "sources", "fields"}
DEADLINE_MS = 1_000


class World:
    """A node with a project, an applet with a strategy for each handler, and a publisher."""

    def __init__(self, start: StartNode) -> None:
        flags = ("--deadline-ms", str(DEADLINE_MS), "--memory-limit-bytes", str(4 << 20))
        self.node = start(*flags)
        for name in ("NftMinter", "Other"):
            self.node.create_project(name)
        handlers = ("start", "echo", "seven", "fail", "spin", "greedy")
        applet = self.node.deploy("NftMinter", TALLY, "tally", strategies=strategies(*handlers))
        self.applet_id: str = applet["appletID"]
        self.instance_id: str = applet["instance"]["instanceID"]
        self.publisher = self.node.add_publisher("NftMinter", "device-1")
        self.stranger = self.node.add_publisher("Other", "device-1")

    def event(self, event_type: str = "START", payload: bytes = b"hi", **header: Any) -> Any:
        sent = message(self.publisher, payload, event_type)
        sent["header"] |= header
        return sent

    def count(self) -> int:
        """Return how many events the applet has counted."""
        return self.node.count("NftMinter", self.applet_id)

    def still_works(self) -> None:
        """Check that the next valid event is handled."""
        before = self.count()
        answer = self.node.send("NftMinter", self.event())
        assert answer.status == 201, answer
        assert self.count() == before + 1


@pytest.fixture(scope="module")
def world(start_module_node: StartNode) -> World:
    return World(start_module_node)


def result(answer: Any) -> Any:
    assert answer.status == 201, answer
    (only,) = answer.json["results"]
    return only


@pytest.mark.thorough
def test_an_event_runs_its_handler_and_is_answered_201_with_the_result(world: World) -> None:
    before = world.count()
    answer = world.node.send("NftMinter", world.event())
    assert result(answer) == {"instanceID": world.instance_id, "code": 0, "errMsg": ""}
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.headers["X-Event-Id"]
    assert world.count() == before + 1


def test_the_documented_curl_request_works_byte_for_byte(world: World) -> None:
    header = {
        "event_type": "ECHO",
        "pub_id": "device-1",
        "pub_time": 1666211451,
        "token": world.publisher["token"],
    }
    body = json.dumps(
        {"header": header, "payload": "VGhpcyBpcyB0aGUgbWVzc2FnZSBwYXlsb2FkCg=="},
        separators=(",", ":"),
    ).encode()
    head = (
        f"POST {PREFIX}/event/NftMinter HTTP/1.1\r\nHost: 127.0.0.1:{world.node.http_port}\r\n"
        "User-Agent: curl/7.88.1\r\nAccept: */*\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(
        ("127.0.0.1", world.node.http_port), timeout=LIMIT_S
    ) as connection:
        connection.sendall(head.encode() + body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 201 Created\r\n")
    assert world.node.kv("NftMinter", world.applet_id, b"last") == b"This is the message payload\n"


def test_the_alias_prefix_and_a_chunked_body_reach_the_same_service(world: World) -> None:
    body = json.dumps(world.event("SEVEN")).encode()
    answer = world.node.call("POST", "/srv-applet-mgr/v0/event/NftMinter", body, token="")
    assert result(answer)["code"] == 7
    chunked = (
        "POST /api/w3bapp/event/NftMinter HTTP/1.1\r\nHost: x\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
        f"{len(body):x}\r\n".encode()
        + body
        + b"\r\n0\r\n\r\n"
    )
    with socket.create_connection(
        ("127.0.0.1", world.node.http_port), timeout=LIMIT_S
    ) as connection:
        connection.sendall(chunked)
        received = b""
        while b"results" not in received:
            data = connection.recv(65536)
            assert data, received
            received += data
        assert b'"code":7' in received


def test_a_publisher_may_be_named_by_its_id(world: World) -> None:
    sent = world.event("SEVEN", pub_id=world.publisher["publisherID"])
    assert result(world.node.send("NftMinter", sent))["code"] == 7


def test_a_devices_own_event_id_is_echoed(world: World) -> None:
    answer = world.node.send("NftMinter", world.event("SEVEN", event_id="evt-1"))
    assert answer.headers["X-Event-Id"] == "evt-1"


def test_a_large_payload_within_the_limit_arrives_whole(world: World) -> None:
    payload = bytes(range(256)) * 2800
    assert result(world.node.send("NftMinter", world.event("ECHO", payload)))["code"] == 0
    assert world.node.kv("NftMinter", world.applet_id, b"last") == payload


def test_a_heartbeat_without_a_payload_reaches_its_handler_with_an_empty_one(world: World) -> None:
    world.node.send("NftMinter", world.event("ECHO", b"before"))
    without = world.event("ECHO")
    del without["payload"]
    null = {**without, "payload": None}
    for sent in (without, null, {"events": [without]}):
        assert world.node.send("NftMinter", world.event("ECHO", b"before")).status == 201
        answer = world.node.send("NftMinter", sent)
        assert (answer.status, '"code":0' in answer.body.decode()) == (201, True), answer
        assert world.node.kv("NftMinter", world.applet_id, b"last") == b""


# ---------------------------------------------------------------- batches


def test_a_batch_is_answered_with_one_result_per_message_in_order(world: World) -> None:
    before = world.count()
    events = [
        world.event("START", event_id="e1"),
        world.event("SEVEN", event_id="e2"),
        world.event("FAIL", event_id="e3"),
    ]
    answer = world.node.send("NftMinter", {"events": events})
    assert answer.status == 201, answer
    assert [item["eventID"] for item in answer.json] == ["e1", "e2", "e3"]
    assert {(item["projectName"], item["pubID"]) for item in answer.json} == {
        ("NftMinter", world.publisher["publisherID"])
    }
    codes = [item["wasmResults"][0]["code"] for item in answer.json]
    assert codes == [0, 7, -1]
    assert world.count() == before + 1


def test_a_bad_message_of_a_batch_costs_only_itself(world: World) -> None:
    before = world.count()
    events = [
        world.event(),
        world.event(token="x"),
        world.event("BURN"),
        {"header": {"pub_id": "device-1"}, "payload": "*"},
        7,
        world.event(),
    ]
    answer = world.node.send("NftMinter", {"events": events})
    assert answer.status == 201, answer
    errors = [item.get("errMsg", "") for item in answer.json]
    assert errors[0] == errors[5] == ""
    assert "[InvalidEventToken][401999015]" in errors[1]
    assert "[404999007]" in errors[2]
    assert "not found strategy" in errors[2]
    assert "<header.token:missing required field>" in errors[3]
    assert "[badRequest][400000000]" in errors[4]
    assert [item["wasmResults"] for item in answer.json[1:5]] == [None] * 4
    number = world.publisher["publisherID"]
    numbers = [item.get("pubID") for item in answer.json]
    assert numbers == [number, None, number, None, None, number]
    names = [item.get("pubName") for item in answer.json]
    assert names == [world.publisher["name"], None, world.publisher["name"], None, None, names[0]]
    assert world.count() == before + 2


def test_a_batch_for_an_unknown_project_is_refused_whole(world: World) -> None:
    answer = world.node.send("Nowhere", {"events": [world.event()]})
    assert (answer.status, answer.json["key"]) == (404, "ProjectNotFound")


def test_a_batch_of_half_a_million_messages_is_refused_whole_and_at_once(world: World) -> None:
    body = b'{"events":[' + b",".join([b"0"] * 500_000) + b"]}"
    answer = world.node.call("POST", f"{PREFIX}/event/NftMinter", body, token="")
    assert answer.status == 400
    assert answer.json["fields"] == [
        {"field": "events", "msg": "more than 8192 messages", "in": "body"}
    ]
    world.still_works()


def test_an_empty_batch_is_answered_with_an_empty_list(world: World) -> None:
    answer = world.node.send("NftMinter", {"events": []})
    assert (answer.status, answer.json) == (201, [])


def test_a_large_batch_is_counted_exactly(world: World) -> None:
    before = world.count()
    events = [world.event(payload=b"%d" % n) for n in range(1000)]
    answer = world.node.send("NftMinter", {"events": events})
    assert answer.status == 201
    assert [item["wasmResults"][0]["code"] for item in answer.json] == [0] * 1000
    assert world.count() == before + 1000


# ---------------------------------------------------------------- what bad input gets


def token_of(world: World, **claims: Any) -> str:
    """Return a token signed with the node's own key, as only a bug or a thief could make it."""
    key = (world.node.data / "secrets" / "token.key").read_bytes()
    base = {"Payload": world.publisher["publisherID"], "iss": "fb"}
    return jwt.encode(base | claims, key, "HS256")


def foreign_token(key: str, algorithm: str) -> str:
    return jwt.encode({"Payload": "1", "iss": "fb"}, key, algorithm)


def large(world: World) -> Any:
    return world.event(payload=b"x" * (1 << 20))


def of_stranger(world: World) -> Any:
    return world.event(pub_id=world.stranger["publisherID"], token=world.stranger["token"])


BAD_BODIES: dict[str, tuple[Any, str]] = {
    "not JSON": (b"hello", "body is not JSON"),
    "empty": (b"", "body is not JSON"),
    "a list": (b"[]", "not a JSON object"),
    "no header": ({"payload": ""}, "header"),
    "no publisher": ({"header": {"token": "t"}, "payload": ""}, "header.pub_id"),
    "no token": ({"header": {"pub_id": "p"}, "payload": ""}, "header.token"),
    "a number as publisher": (lambda w: w.event(pub_id=7), "header.pub_id"),
    "a string as time": (lambda w: w.event(pub_time="1666211451"), "header.pub_time"),
    "bad base64": (lambda w: w.event() | {"payload": "***"}, "illegal base64 data at input byte 0"),
}
BAD_TOKENS: dict[str, tuple[Callable[[World], str], str]] = {
    "another publisher's": (lambda w: w.stranger["token"], "token of another publisher"),
    "expired": (lambda w: token_of(w, exp=1), "token is expired"),
    "alg none": (lambda _: foreign_token("", "none"), "not signed with HS256"),
    "another key": (lambda _: foreign_token("x" * 32, "HS256"), "signature is invalid"),
    "genuine, but not the current one": (token_of, "token was replaced"),
    "no token": (lambda _: "x", "malformed"),
}
UNKNOWN: dict[str, tuple[Callable[[World], Any], int, str, str]] = {
    "publisher": (lambda w: w.event(pub_id="device-2"), 404, "PublisherNotFound", "device-2"),
    "publisher of another project": (of_stranger, 404, "PublisherNotFound", ""),
    "strategy": (lambda w: w.event("BURN"), 404, "StrategyNotFound", "BURN"),
    "size": (large, 413, "RequestEntityTooLarge", "1048576"),
}


def refused(world: World, body: Any, status: int, key: str, named: str) -> None:
    """Send an event; check that it is refused with this answer, and that the node still works."""
    before = world.count()
    answer = world.node.send("NftMinter", body)
    assert (answer.status, answer.json["key"]) == (status, key), answer
    assert set(answer.json) == KEYS
    assert named in answer.body.decode()
    assert world.count() == before
    for secret in (world.publisher["token"], world.stranger["token"]):
        assert secret not in answer.body.decode()
    world.still_works()


@pytest.mark.parametrize("case", BAD_BODIES)
def test_the_answer_to_a_malformed_event_says_what_is_wrong(world: World, case: str) -> None:
    body, named = BAD_BODIES[case]
    refused(world, body(world) if callable(body) else body, 400, "badRequest", named)


@pytest.mark.parametrize("case", BAD_TOKENS)
def test_the_answer_to_a_wrong_token_says_why_it_is_wrong(world: World, case: str) -> None:
    token, named = BAD_TOKENS[case]
    refused(world, world.event(token=token(world)), 401, "InvalidEventToken", named)


@pytest.mark.parametrize("case", UNKNOWN)
def test_the_answer_to_an_event_that_nobody_takes_names_what_is_unknown(
    world: World, case: str
) -> None:
    body, status, key, named = UNKNOWN[case]
    refused(world, body(world), status, key, named)


def test_an_event_for_an_unknown_project_is_refused(world: World) -> None:
    answer = world.node.send("Nowhere", world.event())
    assert (answer.status, answer.json["key"]) == (404, "ProjectNotFound")
    assert "Nowhere" in answer.json["desc"]


def test_a_trap_of_a_handler_is_answered_and_leaves_no_effect(world: World) -> None:
    before = world.count()
    told = result(world.node.send("NftMinter", world.event("FAIL")))
    assert told["code"] == -1
    assert "unreachable" in told["errMsg"]
    assert world.count() == before
    world.still_works()


def test_a_handler_that_loops_is_stopped_at_its_deadline_and_leaves_no_effect(
    world: World,
) -> None:
    before = world.count()
    told = result(world.node.send("NftMinter", world.event("SPIN")))
    assert told["code"] == -1
    assert f"deadline of {DEADLINE_MS} ms" in told["errMsg"]
    assert world.count() == before
    world.still_works()


def test_a_handler_cannot_have_more_memory_than_the_limit(world: World) -> None:
    told = result(world.node.send("NftMinter", world.event("GREEDY")))
    assert 0 < told["code"] <= (4 << 20) >> 16
    world.still_works()


def test_the_answer_of_a_stopped_instance_says_that_it_is_stopped(world: World) -> None:
    path = f"/deploy/{world.instance_id}"
    assert world.node.call("PUT", f"{path}/STOP").status == 204
    told = result(world.node.send("NftMinter", world.event()))
    assert (told["code"], told["errMsg"]) == (-1, "instance not running")
    assert world.node.call("PUT", f"{path}/START").status == 204
    world.still_works()


def test_a_removed_publishers_token_stops_working_with_the_answer_to_its_removal(
    world: World,
) -> None:
    gone = world.node.add_publisher("NftMinter", "gone")
    sent = message(gone, b"", "SEVEN")
    assert world.node.send("NftMinter", sent).status == 201
    path = f"/publisher/NftMinter?publisherID={gone['publisherID']}"
    assert world.node.call("DELETE", path).status == 204
    answer = world.node.send("NftMinter", sent)
    assert (answer.status, answer.json["key"]) == (404, "PublisherNotFound")


def test_a_new_strategy_counts_from_the_next_event_on(world: World) -> None:
    body = {"strategies": [{"appletID": world.applet_id, "eventType": "NEW", "handler": "seven"}]}
    assert world.node.send("NftMinter", world.event("NEW")).status == 404
    assert world.node.call("POST", "/strategy/NftMinter", body).status == 204
    assert result(world.node.send("NftMinter", world.event("NEW")))["code"] == 7


def test_another_method_on_an_events_path_is_405_and_names_what_is_allowed(world: World) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = world.node.call(method, "/event/NftMinter")
        assert (answer.status, answer.body) == (405, b"Method Not Allowed\n")
        assert answer.headers["Allow"] == "POST, OPTIONS"
    world.still_works()


def test_clients_that_stop_in_the_middle_of_a_request_cost_nothing(world: World) -> None:
    port = world.node.http_port
    head = f"POST {PREFIX}/event/NftMinter HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{{"
    for cut in range(0, len(head), 7):
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as connection:
            connection.sendall(head[:cut].encode())
    world.still_works()


def test_the_log_of_a_trap_and_of_a_handler_can_be_read(world: World) -> None:
    world.node.send("NftMinter", world.event("START", b"hello log"))
    world.node.send("NftMinter", world.event("FAIL"))

    def rows() -> Any:
        found = world.node.call("GET", "/applet_log/NftMinter?after=-100").json["data"]
        texts = [row["msg"] for row in found]
        return "hello log" in texts and any("unreachable" in text for text in texts)

    until(rows, "both are in the applet log")


@pytest.mark.thorough
def test_a_project_that_idles_is_stopped_and_started_by_its_next_event(
    start_node: StartNode,
) -> None:
    node = start_node("--project-idle-s", "1", command="node")
    node.create_project("p")
    node.deploy("p", TALLY)
    publisher = node.add_publisher("p", "d")
    body = json.dumps(message(publisher)).encode()

    def running() -> bool:
        return "project" in parts(node)

    until(lambda: flood(node.http_port, "p", body, 10) == 10 and running(), "it runs")
    until(lambda: not running(), "the idle project retires")
    assert flood(node.http_port, "p", body, 10) == 10
    # Events that keep arriving around the moment of retirement are all handled.
    accepted, limit = 0, time.monotonic() + 4
    sent = 0
    while time.monotonic() < limit:
        accepted += flood(node.http_port, "p", body, 1, connections=1)
        sent += 1
        time.sleep(0.9 + (sent % 10) / 50)
    assert accepted == sent


def open_files(pid: int) -> list[str]:
    """Return the targets of the descriptors of a process."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return found


def test_a_removed_project_leaves_nothing_behind(start_node: StartNode) -> None:
    node = start_node(command="node")
    project = node.create_project("p")
    node.deploy("p", TALLY)
    publisher = node.add_publisher("p", "d")
    applet_id = node.deploy("p", TALLY, "reader")["appletID"]
    assert node.send("p", message(publisher)).status == 201
    assert node.kv("p", applet_id, b"none") == b""  # a gateway has opened its store, too
    store = next((node.data / "projects").iterdir())
    gateway = parts(node)["fb-http:0"]
    assert any(str(store) in file for file in open_files(gateway))
    assert node.call("DELETE", "/project/p").status == 204
    assert node.send("p", message(publisher)).status == 404
    until(lambda: not store.exists(), "its store is removed")
    until(
        lambda: not any(str(store) in file for file in open_files(gateway)),
        "its files are closed",
    )
    assert project


@pytest.mark.thorough
def test_events_that_wait_for_a_project_do_not_bring_it_back_after_its_removal(
    start_node: StartNode,
) -> None:
    node = start_node("--deadline-ms", str(DEADLINE_MS), command="node")
    node.create_project("p")
    node.deploy("p", TALLY, strategies=strategies(DEFAULT="spin"))
    publisher = node.add_publisher("p", "d")
    assert node.send("p", message(publisher)).status == 201
    store = next((node.data / "projects").iterdir())
    body = json.dumps(message(publisher)).encode()
    request = (
        f"POST {PREFIX}/event/p HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    address = ("127.0.0.1", node.http_port)
    waiting = [socket.create_connection(address, timeout=LIMIT_S) for _ in range(12)]
    for connection in waiting:
        connection.sendall(request)
        time.sleep(DEADLINE_MS / 1000 / 8)  # in separate frames, so that two are in flight
    assert node.call("DELETE", "/project/p").status == 204
    answers = [connection.recv(65536) for connection in waiting]
    assert b" 404 Not Found" in answers[-1]
    for connection in waiting:
        connection.close()
    until(lambda: not store.exists(), "its store is removed")
    until(lambda: "project" not in parts(node), "its process is gone")


@pytest.mark.thorough
def test_a_full_store_refuses_the_event_and_takes_the_next_that_fits(start_node: StartNode) -> None:
    node = start_node("--project-map-bytes", str(1 << 20), command="node")
    node.create_project("p")
    applet_id = node.deploy("p", TALLY, strategies=strategies(DEFAULT="echo"))["appletID"]
    publisher = node.add_publisher("p", "d")
    kept = b"1" * 700_000  # while the store has it, another of this size does not fit
    assert node.send("p", message(publisher, kept)).status == 201
    answer = node.send("p", message(publisher, bytes(700_000)))
    assert (answer.status, answer.json["key"]) == (507, "InsufficientStorage"), answer
    assert "size limit" in answer.json["desc"]
    assert node.kv("p", applet_id, b"last") == kept
    assert node.send("p", message(publisher, b"next")).status == 201
    assert node.kv("p", applet_id, b"last") == b"next"


@pytest.mark.thorough
def test_two_gateways_share_the_port_and_one_goes_on_when_the_other_dies(
    start_node: StartNode,
) -> None:
    node = start_node("--http-gateways", "2", command="node")
    node.create_project("p")
    applet_id = node.deploy("p", TALLY)["appletID"]
    publisher = node.add_publisher("p", "d")
    body = json.dumps(message(publisher)).encode()
    assert flood(node.http_port, "p", body, 640, connections=32) == 640
    assert node.count("p", applet_id) == 640
    os.kill(parts(node)["fb-http:1"], signal.SIGKILL)
    until(lambda: "fb-http:1" in parts(node), "the gateway comes back")

    def all_served() -> bool:
        try:
            return flood(node.http_port, "p", body, 64, connections=32) == 64
        except (OSError, AssertionError):
            return False  # a connection that the dead gateway had not yet accepted

    until(all_served, "both serve")
    path = f"/publisher/p?publisherID={publisher['publisherID']}"
    assert node.call("DELETE", path).status == 204
    # It holds as soon as the removal is answered, in every gateway.
    assert {node.send("p", json.loads(body)).status for _ in range(16)} == {404}
