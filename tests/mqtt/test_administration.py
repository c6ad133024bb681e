"""What administrators see of the MQTT server of a running node, and their operations on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    VERSION_311,
    PingReq,
    PingResp,
    Will,
)
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.storage.project.outbox import PARKED
from tests.mqtt.conftest import PROJECT, Site
from tests.support.mqtt_client import new_id
from tests.support.nodes import until
from tests.support.shell import Shell


def get(site: Site, path: str) -> Any:
    answer = site.node.call("GET", f"/mqtt/{path}")
    assert answer.status == 200, answer
    return answer.json


def missing(site: Site, path: str) -> bool:
    return site.node.call("GET", f"/mqtt/{path}").status == 404


@pytest.mark.parametrize(("version", "text"), [(VERSION_311, "3.1.1"), (VERSION_5, "5.0")])
def test_a_connected_client_is_shown_with_what_it_has_sent_and_received(
    site: Site, version: int, text: str
) -> None:
    name = new_id("shown/é")
    path = f"client/{quote(name, safe='')}"
    with site.client(version) as client, site.client() as writer:
        client.connect(name, keep_alive_s=77)
        writer.connect()
        client.subscribe("lake/shown", 1)
        client.publish(PROJECT, site.event())
        writer.publish("lake/shown", b"twelve bytes")
        client.receive()
        until(lambda: get(site, path)["unacknowledgedOut"] == 0, "the message is acknowledged")
        found = get(site, path)
        assert found["clientID"] == name
        assert (found["address"], found["transport"], found["version"]) == (
            "127.0.0.1",
            "tcp",
            text,
        )
        assert (found["keepAlive"], found["sessionExpiry"]) == (77, 0)
        assert (found["subscriptions"], found["queued"]) == (1, 0)
        assert (found["messagesIn"], found["messagesOut"]) == (1, 1)
        assert found["bytesIn"] > len(site.event())
        assert found["bytesOut"] > len("twelve bytes")
        assert found["unacknowledgedIn"] == 0
        assert "principal" not in found
    until(lambda: missing(site, path), "the client is gone")
    assert missing(site, f"session/{quote(name, safe='')}")


def test_a_message_that_a_client_does_not_acknowledge_is_counted(site: Site) -> None:
    name = new_id()
    with site.client() as client, site.client() as writer:
        client.connect(name, receive_maximum=1)
        writer.connect()
        client.subscribe("lake/unacknowledged")
        for _ in range(3):
            writer.publish("lake/unacknowledged", b"x")
        until(lambda: get(site, f"client/{name}")["queued"] == 3, "three messages wait")
        assert get(site, f"client/{name}")["unacknowledgedOut"] == 1


def test_a_client_is_disconnected_with_the_reason_and_its_session_stays(site: Site) -> None:
    name = new_id()
    with site.client() as client:
        client.connect(name, clean=False, expiry_s=600)
        client.subscribe("lake/stays")
        assert site.node.call("DELETE", f"/mqtt/client/{name}").status == 204
        ended = client.ended()
        assert ended is not None
        assert ended.code == ReasonCode.ADMINISTRATIVE_ACTION
    assert missing(site, f"client/{name}")
    found = get(site, f"session/{name}")
    assert found["connected"] is False
    assert found["filters"] == [
        {"filter": "lake/stays", "qos": 1, "noLocal": False, "retainAsPublished": False}
    ]
    with site.client() as client:
        assert client.connect(name, clean=False, expiry_s=600).session_present


def test_a_session_is_removed_with_what_waits_in_it_also_after_a_crash(site: Site) -> None:
    name = new_id()
    with site.client() as client, site.client() as writer:
        will = Will("lake/will of a removed one", b"gone")
        client.connect(name, clean=False, expiry_s=600, will=will)
        client.subscribe("lake/removed")
        client.disconnect()
        writer.connect()
        for _ in range(5):
            writer.publish("lake/removed", b"12345")
        found = get(site, f"session/{name}")
        assert (found["queued"], found["queuedBytes"]) == (5, 85)  # with the topic
        assert found["endedAt"] < found["expiresAt"]
        assert site.node.call("DELETE", f"/mqtt/session/{name}").status == 204
        assert missing(site, f"session/{name}")
        assert site.node.call("DELETE", f"/mqtt/session/{name}").status == 404
    site.kill("fb-mqtt:0")
    until(lambda: site.node.call("GET", "/mqtt/client").status == 200, "it answers again")
    with site.client() as client:
        assert not client.connect(name, clean=False, expiry_s=600).session_present


def test_removing_a_session_ends_its_connection(site: Site) -> None:
    name = new_id()
    with site.client() as client:
        client.connect(name, clean=False, expiry_s=600)
        assert site.node.call("DELETE", f"/mqtt/session/{name}").status == 204
        ended = client.ended()
        assert ended is not None
        assert ended.code == ReasonCode.ADMINISTRATIVE_ACTION


def test_retained_messages_are_listed_shown_and_removed_for_good(site: Site) -> None:
    topics = ["lake/retained/a", "lake/retained/b"]
    with site.client() as client:
        client.connect()
        client.publish(topics[0], "wärme".encode(), retain=True)
        client.publish(topics[1], b"\xff", retain=True, message_expiry_interval=600)

    def listed() -> list[str]:
        rows = get(site, "retained?limit=1000")["data"]
        return [row["topic"] for row in rows if row["topic"] in topics]

    assert listed() == topics
    first = get(site, f"retained/message?topic={topics[0]}")
    assert (first["payload"], first["encoding"], first["qos"]) == ("wärme", "text", 1)
    assert "expiresAt" not in first
    second = get(site, f"retained/message?topic={topics[1]}")
    assert (second["payload"], second["encoding"]) == ("/w==", "base64")
    assert "expiresAt" in second
    path = f"/mqtt/retained/message?topic={topics[0]}"
    assert site.node.call("DELETE", path).status == 204
    assert listed() == topics[1:]
    site.kill("fb-mqtt:0")
    until(lambda: site.node.call("GET", "/mqtt/retained").status == 200, "it answers again")
    assert listed() == topics[1:]


def test_an_administrators_message_reaches_subscribers_and_is_retained(site: Site) -> None:
    with site.client() as client:
        client.connect()
        client.subscribe("lake/admin", 2)
        sent = {"topic": "lake/admin", "payload": "on", "qos": 2, "retain": True}
        answer = site.node.call("POST", "/mqtt/publish", sent)
        assert (answer.status, answer.json["receivers"]) == (201, 1)
        received = client.receive()
        assert (received.payload, received.qos) == (b"on", 2)
    with site.client() as late:
        late.connect()
        late.subscribe("lake/admin")
        assert late.receive().payload == b"on"


@pytest.mark.parametrize(
    "topic", [PROJECT, f"{PROJECT}/push/t/DEFAULT", "a/#", "$SYS/x", "x" * 5_000]
)
def test_a_topic_that_nobody_can_subscribe_to_is_refused(site: Site, topic: str) -> None:
    before = site.count()
    answer = site.node.call("POST", "/mqtt/publish", {"topic": topic, "payload": "x"})
    assert answer.status == 400, answer
    assert answer.json["fields"][0]["field"] == "topic"
    assert site.count() == before


@pytest.mark.thorough
def test_after_a_restore_messages_that_wait_for_clients_are_held_until_the_release(
    new_site: Callable[..., Site], tmp_path: Path
) -> None:
    site = new_site("--mqtt-device-topics", "lake/#")
    name = new_id()
    with site.client() as client, site.client() as writer:
        client.connect(name, clean=False, expiry_s=600)
        client.subscribe("lake/held")
        client.disconnect()
        writer.connect()
        for number in range(5):
            writer.publish("lake/held", b"%d" % number)
    site.node.stop()
    (site.node.data / PARKED).touch()  # the state after a restore
    site.node.start()
    with site.client() as client, site.client() as other, site.client() as writer:
        assert client.connect(name, clean=False, expiry_s=600).session_present
        client.send(PingReq())
        client.expect(PingResp)  # nothing came before it
        other.connect(expiry_s=600)
        writer.connect()
        other.subscribe("lake/new")
        writer.publish("lake/new", b"is delivered")
        assert other.receive().payload == b"is delivered"
        assert get(site, f"client/{name}")["unacknowledgedOut"] == 0
        assert get(site, f"session/{name}")["queued"] == 5
        Shell(tmp_path, site.node)("--data", str(site.node.data), "outbox", "release")
        assert [client.receive().payload for _ in range(5)] == [b"%d" % n for n in range(5)]


# ---------------------------------------------------------------- the command line


@pytest.fixture
def shell(site: Site, tmp_path: Path) -> Shell:
    return Shell(tmp_path, site.node)


@pytest.fixture
def at(site: Site) -> tuple[str, ...]:
    return "--host", "127.0.0.1", "--port", str(site.node.mqtt_port)


def test_pub_tells_that_an_event_was_handled_or_why_it_was_refused(
    site: Site, shell: Shell, at: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "event").write_bytes(site.event())
    before = site.count()
    said = shell.text("mqtt", "pub", PROJECT, f"@{tmp_path / 'event'}", *at)
    assert said == "acknowledged: Success (0x00)\n"
    assert site.count() == before + 1
    wrong = json.loads(site.event())
    wrong["header"]["token"] = "wrong"
    said = shell.fails("mqtt", "pub", PROJECT, json.dumps(wrong), *at, code=4)
    assert "the node refused the message: Not authorized (0x87): " in said
    said = shell.fails("mqtt", "pub", "no-such-project", site.event().decode(), *at)
    assert "the node refused the message: Topic name invalid (0x90): " in said


def test_pub_and_sub_over_tcp_and_websocket_with_a_publishers_login(
    site: Site, shell: Shell, at: tuple[str, ...]
) -> None:
    login = ("--username", f"{PROJECT}/gauge", "--password", site.publisher["token"])
    topic = f"{PROJECT}/gauge/mode"
    for number, where in enumerate((at, ("--websocket",))):
        shell("mqtt", "pub", topic, f"eco {number}", "--retain", *login, *where)
        found = json.loads(shell.text("mqtt", "sub", topic, "-n", "1", "--json", *login, *where))
        assert (found["payload"], found["retain"]) == (f"eco {number}", True)
    others = f"{PROJECT}/valve/#"
    said = shell.fails("mqtt", "sub", others, "-n", "1", *login, *at, code=4)
    assert f"the node refused the subscription {others}: Not authorized (0x87)" in said


def test_clients_and_sessions_are_on_the_command_line(site: Site, shell: Shell) -> None:
    name = new_id("cli")
    with site.client() as client:
        client.connect(name, username=f"{PROJECT}/gauge", password=site.publisher["token"])
        (row,) = [row for row in shell.json("mqtt", "clients") if row["clientID"] == name]
        assert row["principal"] == f"publisher {site.publisher['publisherID']}"
        assert name in shell.text("mqtt", "sessions")
        assert "messages in" in shell.text("mqtt", "client", name)
        shell("mqtt", "disconnect", name)
        assert client.ended() is not None
    assert "NotFound" in shell.fails("mqtt", "client", name)


def test_every_client_is_listed_once_in_parts(
    new_site: Callable[..., Site],
) -> None:
    site = new_site()
    clients = [site.client() for _ in range(30)]
    names = [new_id("many") for _ in clients]
    for client, name in zip(clients, names, strict=True):
        client.connect(name)
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = get(site, f"client?limit=7&after={quote(after)}")
        found += [row["clientID"] for row in page["data"]]
        after = page.get("next")
    assert found == sorted(names)
    for client in clients:
        client.socket.close()
