"""The original's own integration scenarios for devices, and its documented requests byte for byte.

Source: interface document, 12.2 (scenarios 8 to 11 and 13 to 22); where upstream looks into
its database for what has no route, this looks at ours.
"""

from __future__ import annotations

import json
import re
import socket
from typing import Any

import pytest

from tests.support.management import Server, User
from tests.support.tools import LIMIT_S

ADDRESS = "0x1AA325E5144f763a520867c56FC77cC1411430d0"
HASH = "2536e2aee0d8b6a4e5a8b0e6f2a1d0c9b8a7968574635241302f1e0d0c0b0a09"
PROJECT = "test_project"
X = f"x/{PROJECT}"
CHAIN = {"chainID": 4690}


@pytest.fixture
def admin(root: User) -> User:
    """Upstream's tests are an administrator's, in a project of its own."""
    root.project(PROJECT)
    return root


def made(user: User, path: str, body: Any, identifier: str) -> str:
    answer = user("POST", path, body)
    assert answer.status == 201, answer.body
    found: str = answer.json[identifier]
    return found


def test_8_a_publisher_is_created_read_updated_and_deleted(admin: User) -> None:
    body = {"name": "test_publisher", "key": "test_publisher_key"}
    publisher_id = made(admin, f"/publisher/{X}", body, "publisherID")
    assert admin("GET", f"/publisher/data/{publisher_id}").json["key"] == body["key"]
    renamed = {"name": "test_publisher_2", "key": "test_publisher_key_2"}
    assert admin("PUT", f"/publisher/{X}/{publisher_id}", renamed).status == 204
    assert admin("GET", f"/publisher/data/{publisher_id}").json["name"] == "test_publisher_2"
    assert admin("DELETE", f"/publisher/data/{publisher_id}").status == 204
    assert admin("GET", f"/publisher/data/{publisher_id}").key == "PublisherNotFound"


def test_9_five_publishers_are_listed_and_deleted_without_a_filter(admin: User) -> None:
    for n in range(5):
        made(admin, f"/publisher/{X}", {"name": f"n{n}", "key": f"k{n}"}, "publisherID")
    assert admin("GET", f"/publisher/{X}").json["total"] == 5
    assert admin("DELETE", f"/publisher/{X}").status == 204
    assert admin("GET", f"/publisher/{X}").json["total"] == 0


def test_10_a_strategy_is_created_read_updated_and_deleted(admin: User) -> None:
    rule = {
        "appletID": admin.applet(PROJECT)["appletID"],
        "eventType": "test_event",
        "handler": "start",
    }
    strategy_id = made(admin, f"/strategy/{X}", rule, "strategyID")
    found = admin("GET", f"/strategy/data/{strategy_id}").json
    assert (found["eventType"], found["handler"]) == ("test_event", "start")
    changed = {**rule, "eventType": "test_event_2", "handler": "mint"}
    assert admin("PUT", f"/strategy/{strategy_id}", changed).status == 204
    found = admin("GET", f"/strategy/data/{strategy_id}").json
    assert (found["eventType"], found["handler"]) == ("test_event_2", "mint")
    assert admin("DELETE", f"/strategy/data/{strategy_id}").status == 204
    assert admin("GET", f"/strategy/data/{strategy_id}").key == "StrategyNotFound"


def test_11_strategies_of_several_event_types_are_listed_and_deleted(admin: User) -> None:
    applet_id = admin.applet(PROJECT)["appletID"]
    for n in range(4):
        rule = {"appletID": applet_id, "eventType": f"type_{n}", "handler": "start"}
        made(admin, f"/strategy/{X}", rule, "strategyID")
    assert admin("GET", f"/strategy/{X}/datalist").json["total"] == 5, "and the applet's default"
    assert admin("DELETE", f"/strategy/{X}").status == 204
    assert admin("GET", f"/strategy/{X}/datalist").json["total"] == 0


def test_13_a_traffic_limit_is_created_read_updated_and_deleted(admin: User) -> None:
    body = {"threshold": 2, "duration": "10m", "apiType": "EVENT"}
    limit_id = made(admin, f"/traffic/{X}", body, "trafficLimitID")
    found = admin("GET", f"/traffic/data/{limit_id}").json
    assert found["projectID"] == admin("GET", f"/project/{PROJECT}").json["projectID"]
    changed = admin("PUT", f"/traffic/{X}/{limit_id}", {"threshold": 3, "duration": "3m"})
    assert (changed.status, changed.json["threshold"]) == (200, 3)
    assert admin("DELETE", f"/traffic/{X}/data/{limit_id}").status == 204
    assert admin("GET", f"/traffic/data/{limit_id}").key == "TrafficLimitNotFound"


def test_14_a_limit_of_each_kind_is_listed_and_deleted(admin: User) -> None:
    for kind in ("EVENT", "BLOCKCHAIN"):
        body = {"threshold": 2, "duration": "10m", "apiType": kind}
        made(admin, f"/traffic/{X}", body, "trafficLimitID")
    assert admin("GET", f"/traffic/{X}/datalist").json["total"] == 2
    assert admin("DELETE", f"/traffic/{X}").status == 204
    assert admin("GET", f"/traffic/{X}/datalist").json["total"] == 0


@pytest.mark.parametrize(
    ("kind", "body", "identifier", "gone"),
    [
        (
            "contract_log",
            {"contractAddress": ADDRESS, "blockStart": 20299310, "eventType": "t"},
            "contractlogID",
            "ContractLogNotFound",
        ),
        ("chain_tx", {"txAddress": HASH, "eventType": "t"}, "chaintxID", "ChainTxNotFound"),
        ("chain_height", {"height": 1000}, "chainHeightID", "ChainHeightNotFound"),
    ],
    ids=["15", "17", "19"],
)
def test_15_17_19_a_monitor_is_created_found_and_deleted(
    admin: User, kind: str, body: dict[str, Any], identifier: str, gone: str
) -> None:
    path = f"/monitor/{X}/{kind}"
    monitor_id = made(admin, path, {**CHAIN, **body}, identifier)
    assert admin("GET", f"{path}/{monitor_id}").status == 200
    assert admin("DELETE", f"{path}/{monitor_id}").status == 204
    assert admin("GET", f"{path}/{monitor_id}").key == gone


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("contract_log", {"contractAddress": "", "blockStart": 20299310}),
        ("contract_log", {"contractAddress": ADDRESS, "blockStart": 0}),
        ("contract_log", {"contractAddress": ADDRESS, "blockStart": 1, "chainID": 0}),
        ("chain_tx", {"txAddress": ""}),
        ("chain_tx", {"txAddress": HASH, "chainID": 0}),
        ("chain_height", {"height": 0}),
    ],
)
def test_16_18_20_a_monitor_without_what_it_needs_is_a_bad_request(
    admin: User, kind: str, body: dict[str, Any]
) -> None:
    refused = admin("POST", f"/monitor/{X}/{kind}", {**CHAIN, **body})
    assert (refused.status, refused.key) == (400, "badRequest")


def test_20_a_height_without_a_chain_id_passes_as_far_as_the_project_that_is_gone(
    admin: User,
) -> None:
    assert admin("DELETE", f"/project/{PROJECT}").status == 204
    refused = admin("POST", f"/monitor/{X}/chain_height", {"height": 1000, "chainID": 0})
    assert refused.key == "ProjectNotFound"


def test_21_a_cron_job_is_created_found_and_deleted(admin: User) -> None:
    path = f"/cronjob/{admin('GET', f'/project/{PROJECT}').json['projectID']}"
    body = {"cronExpressions": "*/3 * * * *", "eventType": "default"}
    job_id = made(admin, path, body, "cronJobID")
    assert admin("GET", f"{path}?cronJobID={job_id}").json["total"] == 1
    assert admin("DELETE", f"/cronjob/data/{job_id}").status == 204
    assert admin("DELETE", f"/cronjob/data/{job_id}").key == "CronJobNotFound"


def test_22_a_cron_job_needs_an_expression_of_five_fields(admin: User) -> None:
    path = f"/cronjob/{admin('GET', f'/project/{PROJECT}').json['projectID']}"
    assert admin("POST", path, {"eventType": "default"}).key == "badRequest"
    six = {"cronExpressions": "* */3 * * * *", "eventType": "default"}
    assert admin("POST", path, six).key == "InvalidCronExpressions"


# ---------------------------------------------------------------- byte for byte


def exchange(server: Server, request: str) -> tuple[str, str]:
    """Send these bytes; the head and the body of the answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as connection:
        connection.sendall(request.encode())
        answer = b""
        while True:
            head, blank, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            if blank and len(body) >= (int(length[1]) if length else 0):
                return head.decode(), body.decode()
            data = connection.recv(65_536)
            assert data, answer
            answer += data


def test_a_publisher_as_curl_registers_it(server: Server, ada: User) -> None:
    ada.project()
    head, body = exchange(
        server,
        "POST /srv-applet-mgr/v0/publisher/NftMinter HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{server.port}\r\n"
        "User-Agent: curl/7.88.1\r\n"
        "Accept: */*\r\n"
        f"Authorization: Bearer {ada.token}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n"
        "Content-Length: 42\r\n\r\n"
        '{"name":"my_publisher", "key":"publisher"}',
    )
    assert head.startswith("HTTP/1.1 201 Created\r\n")
    assert "Content-Type: application/json; charset=utf-8" in head
    assert re.match(
        r'\{"publisherID":"\d{15,19}","projectID":"\d{15,19}","name":"my_publisher",'
        r'"key":"publisher","token":"eyJ[\w.-]+","createdAt":"[^"]+Z","updatedAt":"[^"]+Z"\}\n\Z',
        body,
    )


def test_a_strategy_as_curl_states_it_is_204_without_a_body(server: Server, ada: User) -> None:
    ada.project()
    applet_id = ada.applet()["appletID"]
    rule = f'{{"strategies":[{{"appletID":"{applet_id}","eventType":"MINT","handler":"mint"}}]}}'
    head, body = exchange(
        server,
        "POST /srv-applet-mgr/v0/strategy/NftMinter HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{server.port}\r\n"
        "User-Agent: curl/7.88.1\r\n"
        "Accept: */*\r\n"
        f"Authorization: Bearer {ada.token}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {len(rule)}\r\n\r\n{rule}",
    )
    assert head.startswith("HTTP/1.1 204 No Content\r\n")
    assert body == ""


def test_a_page_behind_the_alias_with_a_bare_token_as_axios_sends_it(
    server: Server, ada: User
) -> None:
    ada.project()
    body = '{"name":"d","key":"d"}'
    head, answer = exchange(
        server,
        "POST /api/w3bapp/publisher/x/NftMinter HTTP/1.1\r\n"
        "Accept: application/json, text/plain, */*\r\n"
        "Content-Type: application/json\r\n"
        f"Authorization: {ada.token}\r\n"
        "User-Agent: axios/1.21.1\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Accept-Encoding: gzip, compress, deflate, br\r\n"
        f"Host: 127.0.0.1:{server.port}\r\n"
        f"Connection: keep-alive\r\n\r\n{body}",
    )
    assert head.startswith("HTTP/1.1 201 Created\r\n")
    assert json.loads(answer)["token"].startswith("w3b_MV8")


def test_an_unknown_publishers_error_has_the_eight_keys_in_their_order(
    server: Server, ada: User
) -> None:
    ada.project()
    head, body = exchange(
        server,
        "GET /srv-applet-mgr/v0/publisher/data/5 HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {ada.token}\r\n\r\n",
    )
    assert head.startswith("HTTP/1.1 404 Not Found\r\n")
    assert body == (
        '{"key":"PublisherNotFound","code":404999008,"msg":"Publisher Not Found",'
        '"desc":"publisher 5","canBeTalk":true,"id":"","sources":["srv-applet-mgr@0.0.9"],'
        '"fields":null}\n'
    )
