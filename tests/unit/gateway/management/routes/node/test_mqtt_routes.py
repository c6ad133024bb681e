"""Clients, sessions and retained messages of the MQTT server, over the routes."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pytest

from fieldbrook.core.model import ADMIN
from tests.support.management import User, serving, started
from tests.support.mqtt_memory import (
    DirectInspection,
    MemoryMqtt,
    client,
    session,
)


@dataclass
class Node:
    """A node with an MQTT server in memory, and its administrator."""

    mqtt: MemoryMqtt
    admin: User
    developer: User


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    server, context = started(tmp_path)
    mqtt = MemoryMqtt()
    with serving(replace(context, mqtt=DirectInspection(mqtt))) as server.port:
        yield Node(mqtt, server.account("root", ADMIN), server.account("dev"))
    server.writer.close()


def test_clients_are_listed_and_shown_with_all_that_is_known_of_them(node: Node) -> None:
    node.mqtt.add(client("a"), client("b", "publisher 7", session_expiry_s=0xFFFFFFFF))
    rows = node.admin("GET", "/mqtt/client").json["data"]
    assert [row["clientID"] for row in rows] == ["a", "b"]
    assert rows[0] == {
        "clientID": "a",
        "address": "192.0.2.7",
        "transport": "tls",
        "version": "5.0",
        "connectedAt": "2023-11-14T22:13:20.000Z",
        "keepAlive": 60,
        "sessionExpiry": 3_600,
        "subscriptions": 1,
        "messagesIn": 10,
        "messagesOut": 20,
        "bytesIn": 1_000,
        "bytesOut": 2_000,
        "unacknowledgedIn": 3,
        "unacknowledgedOut": 4,
        "queued": 5,
    }
    assert rows[1]["principal"] == "publisher 7"
    assert "sessionExpiry" not in rows[1], "it never expires"
    assert node.admin("GET", "/mqtt/client/b").json == rows[1]


def test_lists_come_in_parts_that_hold_everything_once(node: Node) -> None:
    names = [f"client {number:03}/é?" + "x" * 240 for number in range(25)]
    node.mqtt.add(*map(client, names))
    for name in names:
        node.mqtt.retain(name, b"")
    for path, field in (("client", "clientID"), ("session", "clientID"), ("retained", "topic")):
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            answer = node.admin("GET", f"/mqtt/{path}?limit=10&after={quote(after)}").json
            found += [row[field] for row in answer["data"]]
            after = answer.get("next")
        assert found == names
    for wrong in ("!", "Y", "_w"):
        refused = node.admin("GET", f"/mqtt/client?after={quote(wrong)}")
        assert refused.fields == {"after": "not the `next` of a list"}


def test_a_client_is_disconnected_and_its_session_stays(node: Node) -> None:
    node.mqtt.add(client("room/1"))
    path = f"/mqtt/client/{quote('room/1', safe='')}"
    assert node.admin("DELETE", path).status == 204
    again = node.admin("DELETE", path)
    assert (again.status, again.key) == (404, "NotFound")
    assert node.admin("GET", path).status == 404
    assert node.admin("GET", "/mqtt/session").json["data"][0]["clientID"] == "room/1"


def test_a_session_is_shown_with_its_subscriptions_and_removed_with_its_connection(
    node: Node,
) -> None:
    node.mqtt.add(client("on"))
    away = session("away")
    node.mqtt.known[away.key] = away
    found = node.admin("GET", "/mqtt/session/away").json
    assert found == {
        "clientID": "away",
        "connected": False,
        "createdAt": "2023-11-14T22:13:20.000Z",
        "endedAt": "2023-11-14T22:13:21.000Z",
        "expiresAt": "2023-11-14T23:13:21.000Z",
        "sessionExpiry": 3_600,
        "subscriptions": 2,
        "queued": 5,
        "queuedBytes": 500,
        "unacknowledgedOut": 0,
        "will": True,
        "filters": [
            {"filter": "a/#", "qos": 1, "noLocal": False, "retainAsPublished": False},
            {
                "filter": "b",
                "qos": 2,
                "noLocal": True,
                "retainAsPublished": True,
                "identifier": 9,
            },
        ],
    }
    connected = node.admin("GET", "/mqtt/session/on").json
    assert connected["connected"] is True
    assert not connected.keys() & {"endedAt", "expiresAt"}
    assert "filters" not in node.admin("GET", "/mqtt/session").json["data"][0]
    assert node.admin("DELETE", "/mqtt/session/on").status == 204
    assert node.admin("DELETE", "/mqtt/session/on").status == 404
    assert node.mqtt.connected == {}


def test_of_several_clients_with_one_id_the_principal_says_which(node: Node) -> None:
    node.mqtt.add(client("x"), client("x", "publisher 7"), client("x", "account 3"))
    refused = node.admin("DELETE", "/mqtt/client/x")
    assert refused.fields == {"principal": "several have this id: -, account 3, publisher 7"}
    assert (
        node.admin("GET", "/mqtt/client/x?principal=publisher%207").json["principal"]
        == "publisher 7"
    )
    assert "principal" not in node.admin("GET", "/mqtt/client/x?principal=-").json
    assert node.admin("GET", "/mqtt/client/x?principal=account%204").status == 404
    assert node.admin("DELETE", "/mqtt/client/x?principal=-").status == 204
    assert len(node.mqtt.connected) == 2


def test_retained_messages_are_shown_as_text_or_base64_and_removed(node: Node) -> None:
    node.mqtt.retain("a/b", "21.5 °C".encode(), 1_700_000_000_000)
    node.mqtt.retain("raw", b"\xff\0")
    assert node.admin("GET", "/mqtt/retained").json == {
        "data": [
            {"topic": "a/b", "qos": 1, "size": 8, "expiresAt": "2023-11-14T22:13:20.000Z"},
            {"topic": "raw", "qos": 1, "size": 2},
        ]
    }
    shown = node.admin("GET", "/mqtt/retained/message?topic=a/b").json
    assert (shown["payload"], shown["encoding"]) == ("21.5 °C", "text")
    shown = node.admin("GET", "/mqtt/retained/message?topic=raw").json
    assert (shown["payload"], shown["encoding"]) == ("/wA=", "base64")
    assert node.admin("DELETE", "/mqtt/retained/message?topic=raw").status == 204
    assert node.admin("DELETE", "/mqtt/retained/message?topic=raw").key == "NotFound"
    assert node.admin("GET", "/mqtt/retained/message").status == 400


def test_a_message_is_published_byte_for_byte(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.mqtt.add(client("a"))
    sent = {"topic": "t", "payload": base64.b64encode(b"\0\xff").decode(), "encoding": "base64"}
    answer = node.admin("POST", "/mqtt/publish", {**sent, "qos": 2, "retain": True})
    assert (answer.status, answer.json) == (201, {"topic": "t", "size": 2, "receivers": 1})
    assert node.admin("POST", "/mqtt/publish", {"topic": "t"}).status == 201
    assert node.mqtt.published == [("t", b"\0\xff", 2, True), ("t", b"", 0, False)]
    for wrong in ({}, {"topic": ""}, {"topic": "t", "qos": 3}, {**sent, "payload": "?"}):
        assert node.admin("POST", "/mqtt/publish", wrong).status == 400
    refused = node.admin("POST", "/mqtt/publish", {"topic": "a/#"})
    assert refused.fields == {"topic": "no topic of messages"}
    node.mqtt.is_full = True
    full = node.admin("POST", "/mqtt/publish", {"topic": "t"})
    assert (full.status, full.key) == (507, "InsufficientStorage")
    assert len(node.mqtt.published) == 2
    assert "the store has reached its size limit" in caplog.text


CHANGES = (
    ("DELETE", "/mqtt/client/a", None),
    ("DELETE", "/mqtt/session/a", None),
    ("DELETE", "/mqtt/retained/message?topic=t", None),
    ("POST", "/mqtt/publish", {"topic": "t"}),
)
READS = ("/mqtt/client", "/mqtt/client/a", "/mqtt/session", "/mqtt/session/a", "/mqtt/retained",
         "/mqtt/retained/message?topic=t")  # fmt: skip


def test_only_administrators_may_look_or_change_anything(node: Node) -> None:
    node.mqtt.add(client("a"))
    node.mqtt.retain("t", b"secret")
    for method, path, body in (*CHANGES, *(("GET", path, None) for path in READS)):
        refused = node.developer(method, path, body)
        assert refused.status in (401, 403), path
        assert b"secret" not in refused.body
    assert node.mqtt.connected
    assert node.mqtt.kept
    assert not node.mqtt.published


def test_every_change_is_in_the_audit_log(node: Node) -> None:
    node.mqtt.add(client("a"))
    node.mqtt.retain("t", b"")
    for method, path, body in CHANGES:
        assert node.admin(method, path, body).status in (201, 204)
    rows: list[str] = []
    while len(rows) < len(CHANGES):
        rows = [
            f"{row['method']} {row['path']}"
            for row in node.admin("GET", "/audit").json["data"]
            if row["path"].startswith("/mqtt")
        ]
    assert rows[::-1] == [f"{method} {path}" for method, path, _ in CHANGES]


def test_a_node_with_an_external_broker_says_that_it_has_no_clients(tmp_path: Path) -> None:
    server, context = started(tmp_path)
    with serving(context) as server.port:
        admin = server.account("root", ADMIN)
        for path in READS:
            answer = admin("GET", path)
            assert answer.status == 404
            assert "external MQTT broker" in answer.json["desc"]
    server.writer.close()
