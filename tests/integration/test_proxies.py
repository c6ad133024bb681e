"""Clients that come through a reverse proxy on the node's own machine."""

from __future__ import annotations

from fieldbrook.gateway.management.sign_in.throttle import PER_NAME, PER_PEER
from tests.support.first_administrator import PASSWORD, USERNAME
from tests.support.nodes import Answer, RunningNode, StartNode

STRANGER, OWNER = "203.0.113.1", "198.51.100.7"


def log_in(node: RunningNode, client: str, name: str, password: str) -> Answer:
    """Send a login like the proxy forwards it; the client may have sent the first address
    itself."""
    person = {"username": name, "password": password}
    forwarded = {"X-Forwarded-For": f"{OWNER}, {client}"}
    return node.call("PUT", "/login", person, token="", headers=forwarded)


def guess(node: RunningNode) -> None:
    """Send wrong logins of a stranger, until no more are checked."""
    for number in range(PER_NAME.burst):
        assert log_in(node, STRANGER, USERNAME, f"wrong-{number}").status == 401
    for number in range(PER_PEER.burst - PER_NAME.burst):
        assert log_in(node, STRANGER, f"nobody-{number}", "wrong").status == 404
    assert log_in(node, STRANGER, "nobody", "wrong").status == 429


def test_a_stranger_behind_the_same_proxy_keeps_nobody_from_logging_in(
    start_node: StartNode,
) -> None:
    node = start_node("--trusted-proxies", "127.0.0.1")
    assert log_in(node, OWNER, USERNAME, PASSWORD).status == 200
    guess(node)
    assert log_in(node, OWNER, USERNAME, PASSWORD).status == 200
    rows = node.call("GET", "/audit?size=100").json["data"]
    assert {STRANGER, OWNER} <= {row["from"] for row in rows}, rows


def test_a_header_of_a_client_that_is_no_proxy_is_not_believed(start_node: StartNode) -> None:
    node = start_node("--trusted-proxies", "10.0.0.0/8")
    for number in range(PER_PEER.burst):
        log_in(node, f"203.0.113.{number}", f"nobody-{number}", "wrong")
    assert log_in(node, "203.0.113.99", "nobody", "wrong").status == 429
