"""Publishers' tokens in a running node: replaced, expired, and limited to event types."""

from __future__ import annotations

from typing import Any

import pytest

from fieldbrook.core.clock import now_ms, rfc3339
from tests.support.applets import TALLY
from tests.support.mqtt_client import MqttClient
from tests.support.nodes import StartNode, message, strategies, until


class World:
    """A node with a project whose applet counts."""

    def __init__(self, start: StartNode) -> None:
        self.node = start("--http-gateways", "2")
        self.node.create_project("p")
        self.applet_id: str = self.node.deploy("p", TALLY, strategies=strategies(DEFAULT="quiet"))[
            "appletID"
        ]
        self._made = 0

    def publisher(self, **fields: Any) -> Any:
        self._made += 1
        body = {"name": "n", "key": f"device-{self._made}", **fields}
        answer = self.node.call("POST", "/publisher/x/p", body)
        assert answer.status == 201, answer
        return answer.json

    def send(self, publisher: Any, event_type: str = "DEFAULT") -> Any:
        return self.node.send("p", message(publisher, event_type=event_type))

    def count(self) -> int:
        return self.node.count("p", self.applet_id)


@pytest.fixture(scope="module")
def world(start_module_node: StartNode) -> World:
    return World(start_module_node)


def test_an_access_key_works_as_a_token_and_stops_when_it_is_replaced(world: World) -> None:
    old = world.publisher()
    assert [world.send(old).status for _ in range(8)] == [201] * 8
    path = f"/publisher/data/{old['publisherID']}/token"
    new = world.node.call("POST", path).json
    before = world.count()
    # With eight connections, both gateways get some.
    refused = [world.send(old) for _ in range(8)]
    assert {answer.status for answer in refused} == {401}
    assert {answer.json["key"] for answer in refused} == {"InvalidEventToken"}
    assert "replaced" in refused[0].json["desc"]
    assert world.count() == before
    assert world.send(new).status == 201


def test_a_signed_token_that_was_replaced_is_refused(world: World) -> None:
    old = world.node.add_publisher("p", "seed-device")
    assert world.send(old).status == 201
    world.node.call("POST", f"/publisher/data/{old['publisherID']}/token")
    refused = world.send(old)
    assert (refused.status, "replaced" in refused.json["desc"]) == (401, True)


def test_a_token_works_until_its_time_is_over(world: World) -> None:
    publisher = world.publisher(expiresAt=rfc3339(now_ms() + 3_600_000))
    assert world.send(publisher).status == 201
    path = f"/publisher/data/{publisher['publisherID']}/token"
    short = world.node.call("POST", path, {"expiresAt": rfc3339(now_ms() + 1_000)}).json
    until(lambda: world.send(short).status == 401, "the token ends")
    refused = world.send(short)
    assert refused.json["key"] == "InvalidEventToken"
    assert refused.json["desc"].endswith("token is expired")


def test_a_token_whose_access_key_has_lost_its_permission_sends_nothing(world: World) -> None:
    node, publisher = world.node, world.publisher()
    key = f"/account_access_key/pub_{publisher['publisherID']}"
    raw = "/event/p?eventType=DEFAULT&timestamp=1&eventID=e"

    def answers() -> list[int]:
        """Return the answers to an event with a header, to one without, and to CONNECT."""
        with MqttClient(node.mqtt_port) as client:
            code = client.connect(username=publisher["key"], password=publisher["token"]).code
        token = publisher["token"]
        return [
            world.send(publisher).status,
            node.call("POST", raw, b"x", token=token).status,
            code,
        ]

    assert answers() == [201, 201, 0]
    before = world.count()
    node.call("PUT", key, {"privileges": [{"name": "Event", "perm": "READONLY"}]})
    assert answers()[:2] == [403, 403]
    assert world.send(publisher).json["key"] == "AccessKeyPermissionDenied"
    assert world.count() == before
    node.call("PUT", key, {"privileges": [{"name": "Event", "perm": "READ_WRITE"}]})
    assert answers() == [201, 201, 0]


def test_an_event_of_a_type_its_publisher_may_not_send_is_403_and_runs_nothing(
    world: World,
) -> None:
    publisher = world.publisher(eventTypes=["TEMPERATURE", "DEFAULT"])
    before = world.count()
    assert world.send(publisher, "TEMPERATURE").status == 201
    assert world.send(publisher, "").status == 201, "an absent type is DEFAULT"
    refused = world.send(publisher, "DOOR")
    assert (refused.status, refused.json["key"]) == (403, "EventTypeNotAllowed")
    assert refused.json["code"] == 403_999_051
    assert world.count() == before + 2
    events = {"events": [message(publisher, event_type=t) for t in ("DOOR", "TEMPERATURE")]}
    batch = world.node.send("p", events)
    assert batch.status == 201
    assert "EventTypeNotAllowed" in batch.json[0]["errMsg"]
    assert "errMsg" not in batch.json[1]
    path = f"/publisher/x/p/{publisher['publisherID']}"
    body = {"name": "n", "key": publisher["key"], "eventTypes": []}
    assert world.node.call("PUT", path, body).status == 204
    assert world.send(publisher, "DOOR").status == 201


def test_one_publishers_access_key_is_not_anothers(world: World) -> None:
    one, two = world.publisher(), world.publisher()
    refused = world.send({**one, "token": two["token"]})
    assert (refused.status, refused.json["key"]) == (401, "InvalidEventToken")
    assert refused.json["desc"].endswith("token of another publisher")
    unknown = world.send({**one, "token": "w3b_nothing"})
    assert unknown.status == 401


def raw(world: World, token: str, event_type: str) -> Any:
    """Send one event in the later form: everything but the payload is in the query."""
    path = f"/event/p?eventType={event_type}"
    return world.node.call("POST", path, b"payload", token=token)


def test_the_later_form_knows_a_publisher_by_its_token_and_its_limits(world: World) -> None:
    publisher = world.publisher(eventTypes=["DEFAULT"])
    before = world.count()
    taken = raw(world, publisher["token"], "DEFAULT")
    assert (taken.status, taken.json["publisherID"]) == (201, publisher["publisherID"])
    refused = raw(world, publisher["token"], "DOOR")
    assert (refused.status, refused.json["key"]) == (403, "EventTypeNotAllowed")
    path = f"/publisher/data/{publisher['publisherID']}/token"
    new = world.node.call("POST", path).json
    assert {raw(world, publisher["token"], "DEFAULT").status for _ in range(8)} <= {401, 404}
    assert raw(world, new["token"], "DEFAULT").status == 201
    assert world.count() == before + 2


def test_the_later_form_is_429_over_the_projects_limit(world: World) -> None:
    publisher = world.publisher()
    limit = {"threshold": 1, "duration": "24h", "apiType": "EVENT"}
    assert world.node.call("POST", "/traffic/x/p", limit).status == 201
    assert raw(world, publisher["token"], "DEFAULT").status == 201
    refused = raw(world, publisher["token"], "DEFAULT")
    assert (refused.status, refused.json["key"]) == (429, "TrafficLimitExceededFailed")
    assert int(refused.headers["Retry-After"]) > 0
    assert world.node.call("DELETE", "/traffic/x/p").status == 204
    assert raw(world, publisher["token"], "DEFAULT").status == 201
