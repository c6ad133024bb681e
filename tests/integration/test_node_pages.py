"""The pages of a node that need no account: liveness, readiness, health, version."""

from __future__ import annotations

import json

from fieldbrook.observability.health import NO_BROKER, STORE_FULL, Condition, NodeHealth
from tests.support.management import (
    Server,
    User,
)


def test_the_root_says_that_the_node_lives(server: Server) -> None:
    for method in ("GET", "HEAD"):
        reply = server.send(method, "/")
        assert (reply.status, reply.body) == (204, b"")
    assert server.send("POST", "/", "x").status == 405


def test_liveness_is_a_map_of_components(server: Server) -> None:
    condition = Condition("mqtt:0", NO_BROKER, "at broker.example", 1)
    server.health = NodeHealth((condition,), parts={"registry": "up", "http:0": "up"})
    reply = server.send("GET", "/liveness")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json; charset=utf-8"
    assert json.loads(reply.body) == {
        "Registry": "ok",
        "Broker": "no_broker: there is no connection to the external MQTT broker",
        "Disk": "ok",
        "Clock": "ok",
        "Secrets": "ok",
        "Http/0": "ok",
    }


def test_a_node_that_cannot_read_its_registry_is_neither_alive_nor_ready(
    server: Server,
) -> None:
    server.health = NodeHealth(registry="its data file is not a store")
    assert server.send("GET", "/liveness").status == 503
    reply = server.send("GET", "/readiness")
    assert (reply.status, json.loads(reply.body)["ready"]) == (503, False)
    server.health = NodeHealth()
    assert json.loads(server.send("GET", "/readiness").body) == {"ready": True, "reasons": []}


def test_the_details_of_what_is_wrong_are_for_administrators(
    server: Server, root: User, ada: User
) -> None:
    server.health = NodeHealth((Condition("project:7", STORE_FULL, "in /srv/data", 1),))
    assert b"/srv/data" not in server.send("GET", "/liveness").body
    assert ada("GET", "/health").status == 401
    answer = root("GET", "/health").json
    assert answer["healthy"] is False
    assert [(row["part"], row["state"], row["detail"]) for row in answer["data"]] == [
        ("project:7", "store_full", "in /srv/data")
    ]


def test_version_is_plain_text(server: Server) -> None:
    reply = server.send("GET", "/version")
    assert (reply.status, reply.body) == (200, b"fieldbrook@0.0.9")
    assert reply.headers["Content-Type"].startswith("text/plain")
    assert server.send("PUT", "/version").headers["Allow"] == "GET"
