"""The history of refused events: an event that no project accepted can be found by its id."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.support.applets import SENDER, TALLY
from tests.support.brokers import Device
from tests.support.nodes import StartNode, long_id, message, named, strategies, until

_LIMIT = 4_096


class Refusing:
    """A node with a project, and with a limit that is soon reached."""

    def __init__(self, start: StartNode) -> None:
        self.node = start("--body-limit-bytes", str(_LIMIT))
        self.node.create_project("asked")
        self.applet = self.node.deploy("asked", TALLY)
        self.publisher = self.node.add_publisher("asked", "d")

    def bad(self, event_id: str = "", **header: str) -> dict[str, Any]:
        made = message(self.publisher, b"payload")
        made["header"] |= header
        if event_id:
            made["header"]["event_id"] = event_id
        return made

    def asked(self, event_id: str) -> dict[str, Any]:
        """Return the rows that the project's owner reads, when there are some."""
        path = f"/event_log/asked?eventID={event_id}"

        def found() -> Any:
            answer = self.node.call("GET", path).json
            return answer if answer["data"] or answer["refusals"] else None

        answer: dict[str, Any] = until(found, f"something is known of {event_id}")
        return answer

    def refused(self, **query: str) -> list[dict[str, Any]]:
        given = "&".join(f"{name}={value}" for name, value in query.items())
        data: list[dict[str, Any]] = self.node.call("GET", f"/refused_event?{given}").json["data"]
        return data


@pytest.fixture(scope="module")
def refusing(start_module_node: StartNode) -> Refusing:
    return Refusing(start_module_node)


def test_a_bad_token_is_the_answer_to_what_became_of_an_event(refusing: Refusing) -> None:
    sent = refusing.bad("bad-token-1", token="wrong")
    assert refusing.node.send("asked", sent).status == 401
    (refusal,) = refusing.asked("bad-token-1")["refusals"]
    assert refusal["error"] == "InvalidEventToken"
    assert (refusal["source"], refusal["publisher"]) == ("http", "d")
    assert refusal["sha256"] == hashlib.sha256(b"payload").hexdigest()[:32]
    assert "wrong" not in json.dumps(refusal)
    assert refusing.publisher["token"] not in json.dumps(refusal)


def test_an_id_of_the_nodes_own_finds_the_refusal_too(refusing: Refusing) -> None:
    answer = refusing.node.send("asked", refusing.bad(pub_id="nobody"))
    assert answer.status == 404
    (refusal,) = refusing.asked(answer.headers["X-Event-Id"])["refusals"]
    assert (refusal["error"], refusal["publisher"]) == ("PublisherNotFound", "nobody")


def test_a_refused_mqtt_message_is_found(refusing: Refusing) -> None:
    with Device(refusing.node.mqtt_port, "refused") as device:
        sent = refusing.bad("bad-mqtt-1", token="wrong")
        device.publish("asked", json.dumps(sent).encode())
        device.publish("asked", b"\x00neither")
    (refusal,) = refusing.asked("bad-mqtt-1")["refusals"]
    assert (refusal["error"], refusal["source"]) == ("InvalidEventToken", "mqtt")
    until(
        lambda: any(row["reason"].startswith("neither") for row in refusing.refused()),
        "what is no event is there as well",
    )


def test_events_for_nobody_are_shown_to_administrators_alone(refusing: Refusing) -> None:
    answer = refusing.node.send("nowhere", refusing.bad())
    event_id = answer.headers["X-Event-Id"]
    (refusal,) = until(lambda: refusing.refused(eventID=event_id), "it is there")
    assert (refusal["project"], refusal["error"]) == ("nowhere", "ProjectNotFound")
    made = refusing.node.call("POST", "/register/ada", {"password": "correct horse"})
    assert made.status in (201, 404)
    assert refusing.node.call("GET", "/refused_event", token="x").status == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"not JSON", 400),
        (b'{"header":{}}', 400),
        (b'{"header":' + b" " * (2 * _LIMIT), 413),
        (b" " * (5 * _LIMIT), 413),
        (b"[" * 99, 400),
        (json.dumps({"events": []}).encode(), 201),
    ],
)
def test_every_refusal_carries_an_id(refusing: Refusing, body: bytes, status: int) -> None:
    for headers in ({}, {"Expect": ""}, {"X-Slow": "\xe9"}):
        answer = refusing.node.call("POST", "/event/asked", body, token="", headers=headers)
        if answer.status == 417:
            continue
        assert answer.status == status, answer
        assert answer.headers["X-Event-Id"]


def test_an_item_of_a_batch_that_is_refused_has_an_id_of_its_own(refusing: Refusing) -> None:
    events = [refusing.bad(), {"header": {}}, refusing.bad(token="x"), 7]
    answer = refusing.node.send("asked", {"events": events})
    ids = [item["eventID"] for item in answer.json]
    assert all(ids)
    assert len(set(ids)) == 4
    assert refusing.asked(ids[1])["refusals"][0]["error"] == "badRequest"
    assert refusing.asked(ids[2])["refusals"][0]["error"] == "InvalidEventToken"
    assert refusing.asked(ids[0])["data"][0]["source"] == "http"


def test_a_history_says_how_an_event_came_and_which_version_of_what_ran(
    refusing: Refusing,
) -> None:
    with Device(refusing.node.mqtt_port, "history") as device:
        for _ in range(2):
            sent = named(refusing.bad(), "came-by-mqtt")
            device.publish("asked", json.dumps(sent).encode())

    def twice() -> Any:
        data = refusing.asked(long_id("came-by-mqtt"))["data"]
        return data if len(data) == 2 else None

    repeated, first = until(twice, "both are recorded")
    assert (first["source"], first["again"]) == ("mqtt", False)
    (result,) = first["results"]
    assert result["appletName"] == "applet"
    assert result["handler"] == "start"
    assert result["appletVersion"] == 1
    assert result["appletID"] == refusing.applet["appletID"]
    assert repeated["again"] is True


def test_a_history_says_what_an_event_has_sent_and_whether_it_was_delivered(
    refusing: Refusing,
) -> None:
    node = refusing.node
    node.create_project("sender")
    node.deploy("sender", SENDER, strategies=strategies(DEFAULT="publish"))
    publisher = node.add_publisher("sender", "d")
    sent = message(publisher, b"21.5")
    sent["header"]["event_id"] = "sends-1"
    assert node.send("sender", sent).status == 201

    def effects() -> Any:
        found = node.call("GET", "/event_log/sender?eventID=sends-1").json["effects"]
        return found if found and found[0]["state"] == "delivered" else None

    (effect,) = until(effects, "it is delivered")
    assert (effect["kind"], effect["target"], effect["size"]) == ("mqtt", "out/readings", 4)


def test_a_flood_of_one_project_hides_no_refusal_of_another(refusing: Refusing) -> None:
    node = refusing.node
    node.create_project("quiet")
    publisher = node.add_publisher("quiet", "d")
    for number in range(300):
        assert node.send("asked", refusing.bad(f"flood-{number}", token="x")).status == 401
    sent = message(publisher, b"x")
    sent["header"] |= {"event_id": "one-in-many", "token": "x"}
    assert node.send("quiet", sent).status == 401
    for number in range(300):
        assert node.send("asked", refusing.bad(f"flood-{number}", token="x")).status == 401
    path = "/event_log/quiet?eventID=one-in-many"
    until(lambda: node.call("GET", path).json["refusals"], "it is found")
    assert node.call("GET", "/refused_event").json["more"] > 0
