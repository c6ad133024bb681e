"""The later form of an event: raw bytes, meta data in the query, a bearer token."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import pytest

from fieldbrook import __version__
from tests.compat.clients import BARE, OTHER, PROJECT, WALLET, World, exchange
from tests.support.applets import TALLY
from tests.support.nodes import PREFIX, StartNode, message, until

KEYS = {"key", "code", "msg", "desc", "canBeTalk", "id", "sources", "fields"}


@pytest.fixture(scope="module")
def world(start_module_node: StartNode) -> World:
    return World(start_module_node)


def refused(answer: Any, status: int, key: str, named: str) -> None:
    assert (answer.status, answer.json["key"]) == (status, key), answer
    assert set(answer.json) == KEYS
    assert named in answer.body.decode()


# ---------------------------------------------------------------- what is answered


def test_a_raw_event_is_answered_with_every_field_of_the_later_reply(world: World) -> None:
    before = int(time.time() * 1000)
    answer = world.post("eventType=ECHO&eventID=Evt-1&timestamp=1700000000000", b"\x00raw\xff")
    assert answer.status == 201
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.headers["X-Event-Id"] == "evt-1"
    reply = answer.json
    assert before <= reply.pop("timestamp") <= int(time.time() * 1000)
    assert reply == {
        "channel": PROJECT,
        "publisherID": world.publisher["publisherID"],
        "publisherKey": "my_publisher_id",
        "eventID": "evt-1",
        "results": [
            {
                "appletName": "tally",
                "instanceID": world.instance_id,
                "handler": "echo",
                "returnValue": None,
                "code": 0,
            }
        ],
    }
    assert world.last == b"\x00raw\xff"


def test_no_type_is_default_and_no_id_is_made_up(world: World) -> None:
    first = world.post("", b"first")
    second = world.post("eventType=&eventID=", b"second")
    assert first.json["results"][0]["handler"] == second.json["results"][0]["handler"] == "echo"
    assert first.json["eventID"]
    assert first.json["eventID"] != second.json["eventID"]
    identifier, _, ending = first.json["eventID"].partition("_")
    assert (uuid.UUID(identifier).version, ending) == (4, "w3b")
    assert world.last == b"second"


def test_a_type_of_no_strategy_falls_back_to_default_and_without_one_to_null(world: World) -> None:
    assert world.post("eventType=NOBODYS").json["results"][0]["handler"] == "echo"
    answer = world.post("eventType=X", channel=BARE, token=world.bare["token"])
    assert answer.status == 201
    assert answer.json["results"] is None
    assert "error" not in answer.json


def test_a_handlers_code_and_its_failure_are_told(world: World) -> None:
    (seven,) = world.post("eventType=SEVEN").json["results"]
    assert (seven["code"], "error" in seven) == (7, False)
    (failed,) = world.post("eventType=FAIL").json["results"]
    assert failed["code"] == -1
    assert "unreachable" in failed["error"]
    path = f"/deploy/{world.instance_id}"
    assert world.node.call("PUT", f"{path}/STOP").status == 204
    (stopped,) = world.post("eventType=SEVEN").json["results"]
    assert (stopped["code"], stopped["error"]) == (-1, "instance not running")
    assert world.node.call("PUT", f"{path}/START").status == 204


def test_each_of_several_handlers_is_named_in_the_order_of_their_creation(world: World) -> None:
    rules = [("MANY", "seven"), ("MANY", "echo"), ("MANY", "start")]
    body = {
        "strategies": [
            {"appletID": world.applet_id, "eventType": kind, "handler": handler}
            for kind, handler in rules
        ]
    }
    assert world.node.call("POST", f"/strategy/{PROJECT}", body).status == 204
    results = world.post("eventType=MANY").json["results"]
    assert [(r["handler"], r["code"]) for r in results] == [("seven", 7), ("echo", 0), ("start", 0)]


@pytest.mark.parametrize("timestamp", ["", "0", "1700000000", "1700000000000000", "-5"])
def test_a_time_stamp_in_any_unit_is_taken(timestamp: str, world: World) -> None:
    assert world.post(f"eventType=ECHO&timestamp={timestamp}").status == 201


def test_any_bytes_are_a_payload(world: World) -> None:
    message_of_early_clients = json.dumps(message(world.publisher, b"hi")).encode()
    for payload in (b"", b"{}", bytes(range(256)) * 2000, message_of_early_clients, b"[1]"):
        assert world.post("eventType=ECHO", payload).status == 201
        assert world.last == payload


@pytest.mark.parametrize(
    "channel",
    [PROJECT, f"aid_7_{PROJECT}", f"{WALLET}_{PROJECT}", "aid_9223372036854775807_" + PROJECT],
)
def test_a_channel_is_the_projects_name_with_or_without_its_owners_prefix(
    channel: str, world: World
) -> None:
    answer = world.post("eventType=SEVEN", channel=channel)
    assert (answer.status, answer.json["channel"]) == (201, channel)
    assert answer.json["results"][0]["code"] == 7
    early = world.node.send(channel, message(world.publisher, b"", "SEVEN"))
    assert early.json["results"][0]["code"] == 7


@pytest.mark.parametrize(
    ("query", "header"),
    [
        ("", "Authorization: Bearer {token}"),
        ("", "authorization:{token}"),
        ("", "Authorization: Bearer{token}"),
        ("&authorization={token}", "X-Other: 1"),
        ("&authorization=Bearer%20{token}", "Authorization: Bearer wrong"),
        ("&authorization=Bearer+{token}", "X-Other: 1"),
    ],
)
def test_the_token_is_found_wherever_clients_put_it(query: str, header: str, world: World) -> None:
    query, header = (text.format(token=world.token) for text in (query, header))
    head = f"POST {PREFIX}/event/{PROJECT}?eventType=SEVEN{query} HTTP/1.1\nHost: x\n{header}"
    answer = world.send(head, b"x")
    assert (answer.status, answer.json["results"][0]["code"]) == (201, 7)


def test_the_fast_path_and_tornado_give_the_same_answers(world: World) -> None:
    line = f"POST {PREFIX}/event/{PROJECT}?eventType=SEVEN&eventID=a%20B HTTP/1.1"
    head = f"{line}\nHost: x\nAuthorization: {world.token}\n"
    fast = world.send(head, b"x")
    slow = world.send(head + "Origin: http://page", b"x")
    assert slow.headers["Access-Control-Allow-Origin"] == "*"
    for answer in (fast, slow):
        assert answer.status == 201
        assert answer.headers["X-Event-Id"] == "a b"
        assert answer.json["eventID"] == "a b"
    assert fast.json | {"timestamp": 0} == slow.json | {"timestamp": 0}


def test_the_event_port_serves_events_in_every_form_and_nothing_else(world: World) -> None:
    port = world.event_port
    assert world.post("eventType=SEVEN", port=port).json["results"][0]["code"] == 7
    sent = message(world.publisher, b"", "SEVEN")
    path = f"/event/{PROJECT}"
    assert world.node.call("POST", path, sent, token="", port=port).status == 201
    assert world.node.call("POST", path, {"events": [sent]}, token="", port=port).status == 201
    assert world.node.call("GET", "/", port=port).status == 204
    assert world.node.call("GET", "/liveness", port=port).status == 200
    answer = world.node.call("GET", "/project", port=port)
    assert (answer.status, answer.body) == (404, b"404 page not found\n")
    assert world.node.call("GET", path, port=port).status == 405


def test_the_clients_of_a_page_ask_before_they_send(world: World) -> None:
    head = (
        f"OPTIONS {PREFIX}/event/{PROJECT}?eventType=X HTTP/1.1\r\nHost: x\r\n"
        "Origin: http://page\r\nAccess-Control-Request-Method: POST\r\n"
        "Access-Control-Request-Headers: authorization,content-type\r\n\r\n"
    )
    answer = exchange(world.node.http_port, head.encode())
    assert answer.status == 204
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]


def test_options_without_an_origin_is_an_empty_200(world: World) -> None:
    head = f"OPTIONS {PREFIX}/event/{PROJECT} HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = exchange(world.node.http_port, head.encode())
    assert (answer.status, answer.body) == (200, b"")
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_every_answer_to_an_event_names_the_operation(world: World) -> None:
    meta = f"srv-applet-mgr@{__version__}/HandleEvent"
    assert world.post("eventType=ECHO").headers["X-Meta"] == meta
    assert world.post("eventType=ECHO", token="nobody's").headers["X-Meta"] == meta
    from_a_page = {"Origin": "http://page"}
    path = f"/event/{PROJECT}?eventType=ECHO"
    answer = world.node.call("POST", path, b"x", token=world.token, headers=from_a_page)
    assert (answer.status, answer.headers["X-Meta"]) == (201, meta)


def test_an_events_path_with_a_slash_too_many_redirects_on_every_port(world: World) -> None:
    for port in (world.node.http_port, world.event_port):
        answer = world.post("eventType=ECHO", b"x", channel=f"{PROJECT}/", port=port)
        assert answer.status == 307
        assert answer.headers["Location"] == f"{PREFIX}/event/{PROJECT}?eventType=ECHO"


def test_ten_events_on_a_channel_with_the_accounts_prefix_are_each_handled(world: World) -> None:
    account = world.project["accountID"]
    world.node.create_project("test_event_benchmark")
    applet = world.node.deploy("test_event_benchmark", TALLY, "log")
    token = world.node.add_publisher("test_event_benchmark", "mn_test_publisher")["token"]
    for number in range(10):
        meta = f"eventID={uuid.uuid4()}&timestamp={time.time_ns() // 1000}"
        answer = world.post(
            meta, b"payload %d" % number, channel=f"aid_{account}_test_event_benchmark", token=token
        )
        assert answer.status == 201
        (result,) = answer.json["results"]
        assert (result["handler"], result["code"]) == ("start", 0)
        assert answer.json["publisherKey"] == "mn_test_publisher"
    assert world.node.count("test_event_benchmark", applet["appletID"]) == 10


# ---------------------------------------------------------------- which form it is


def test_an_early_message_with_a_bearer_token_is_still_a_message(world: World) -> None:
    sent = message(world.publisher, b"", "SEVEN")
    for body in (sent, {"payload": sent["payload"], "Header": sent["header"]}):
        answer = world.post("", json.dumps(body).encode())
        assert answer.json["results"][0] == {
            "instanceID": world.instance_id,
            "code": 7,
            "errMsg": "",
        }
    (item,) = world.post("", json.dumps({"events": [sent]}).encode()).json
    assert item["wasmResults"][0]["code"] == 7


@pytest.mark.parametrize("body", [b'{"data":{}}', b'{"payload":5}', b'{"events":[1]}', b"{", b"25"])
def test_anything_else_with_a_bearer_token_is_a_raw_default_event(
    body: bytes, world: World
) -> None:
    answer = world.post("", body)
    assert (answer.status, answer.json["results"][0]["handler"]) == (201, "echo")
    assert world.last == body


@pytest.mark.parametrize(
    "header", [{}, {"device": "x"}, {"pub_id": "my_publisher_id"}, {"token": ""}, {"token": 7}, 7]
)
def test_json_with_a_header_but_without_a_token_in_it_is_raw_when_a_token_stands_beside_it(
    header: object, world: World
) -> None:
    for body in (
        json.dumps({"header": header, "payload": "aGk="}).encode(),
        b'{"header":%s}' % json.dumps(header).encode(),
        json.dumps({"events": [{"header": header}]}).encode(),
    ):
        answer = world.post("", body)
        assert (answer.status, answer.json["results"][0]["handler"]) == (201, "echo"), answer
        assert world.last == body


def test_a_raw_payload_keeps_the_nuls_and_spaces_at_its_end(world: World) -> None:
    for payload in (b"x\0\0 \n", b'{"t":1}\0', b"\0"):
        assert world.post("eventType=ECHO", payload).status == 201
        assert world.last == payload


# ---------------------------------------------------------------- what bad input gets


def test_a_request_without_or_with_a_bad_token_is_refused(world: World) -> None:
    refused(world.post("eventType=ECHO", token=""), 401, "InvalidToken", "token is empty")
    refused(world.post("eventType=ECHO", token="x"), 401, "InvalidToken", "malformed")


def test_an_accounts_login_is_no_publishers_token_and_it_is_said_so(world: World) -> None:
    account_id = world.node.call("GET", "/account").json["data"][0]["accountID"]
    for query in ("eventType=ECHO", "", "eventType=DA-TA_PU-SH"):
        answer = world.post(query, b"[]", token=world.node.token)
        refused(answer, 404, "PublisherNotFound", account_id)
    sent = message(world.publisher, b"x")
    sent["header"]["token"] = world.node.token
    answer = world.node.send(PROJECT, sent)
    refused(answer, 401, "InvalidEventToken", "token is an account's login")


def test_a_publishers_token_is_no_login_and_it_is_said_so(world: World) -> None:
    answer = world.node.call("GET", "/project", token=world.token)
    refused(answer, 401, "InvalidToken", "token is a publisher's, not an account's")


def test_a_removed_publishers_token_is_refused(world: World) -> None:
    gone = world.node.add_publisher(PROJECT, "gone")
    assert world.post("eventType=SEVEN", token=gone["token"]).status == 201
    path = f"/publisher/{PROJECT}?publisherID={gone['publisherID']}"
    assert world.node.call("DELETE", path).status == 204
    answer = world.post("eventType=SEVEN", token=gone["token"])
    refused(answer, 404, "PublisherNotFound", gone["publisherID"])


def test_a_channel_that_is_not_the_tokens_is_said_in_the_reply(world: World) -> None:
    for channel in ("nowhere", OTHER):
        answer = world.post("eventType=ECHO&eventID=e7", b"x", channel=channel)
        assert answer.status == 201
        assert answer.json == {
            "channel": channel,
            "publisherID": world.publisher["publisherID"],
            "publisherKey": "my_publisher_id",
            "eventID": "e7",
            "timestamp": 0,
            "results": None,
            "error": "InvalidEventChannel",
        }


def test_an_invalid_query_parameter_is_named(world: World) -> None:
    refused(world.post("eventType=ECHO&timestamp=soon"), 400, "badRequest", '"timestamp"')
    refused(world.post(f"eventType=ECHO&timestamp={1 << 63}"), 400, "badRequest", "64-bit")
    answer = world.post(f"eventType=ECHO&eventID={'x' * 129}")
    refused(answer, 400, "badRequest", "longer than 128 characters")
    assert answer.json["fields"][0]["in"] == "query"


def test_a_payload_over_the_limit_is_refused(world: World) -> None:
    answer = world.post("eventType=ECHO", bytes((1 << 20) + 1))
    refused(answer, 413, "RequestEntityTooLarge", "1048576")


def test_no_answer_and_no_log_line_shows_a_token(world: World) -> None:
    world.post("eventType=ECHO", channel="nowhere")
    assert world.token not in world.node.log


def test_an_event_over_the_projects_limit_is_429_and_says_when_to_come_back(world: World) -> None:
    limit = {"threshold": 2, "duration": "1h", "apiType": "EVENT"}
    answer = world.node.call("POST", f"/traffic/x/{BARE}", limit)
    assert answer.status == 201, answer

    def post() -> Any:
        return world.post("eventType=X", channel=BARE, token=world.bare["token"])

    until(lambda: post().status == 429, "the limit is reached")
    answer = post()
    refused(answer, 429, "TrafficLimitExceededFailed", "")
    assert int(answer.headers["Retry-After"]) > 0
