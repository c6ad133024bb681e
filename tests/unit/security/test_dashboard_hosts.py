"""Host names of the dashboard: the name of a foreign page for this node is not accepted."""

from __future__ import annotations

import pytest

from fieldbrook.security.dashboard_hosts import is_dashboard_host

NAMES = ("node.example.com", "*.farm.example")


@pytest.mark.parametrize(
    "header",
    [
        "localhost",
        "LOCALHOST:3000",
        "localhost.",
        "fieldbrook.localhost:3000",
        "127.0.0.1:3000",
        "192.0.2.7",
        "[::1]:3000",
        "[2001:db8::1]",
        "node.example.com",
        "Node.Example.COM.:8443",
        "a.farm.example",
    ],
)
def test_the_loopback_addresses_and_the_nodes_names_are_hosts_of_the_dashboard(header: str) -> None:
    assert is_dashboard_host(header, NAMES)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil-localhost",
        "127.1.evil",
        "b.a.farm.example",
        "farm.example",
        "node.example.com.evil.example",
        "localhost:",
        "localhost:x",
        "localhost:99999",
        "user@localhost",
        "localhost/",
        "localhost, evil.example",
        "2130706433.",
        "::1",
        "[::1",
        "[::1%eth0]",
        "x" * 400,
    ],
)
def test_every_other_host_is_not(header: str) -> None:
    assert is_dashboard_host(header, NAMES) is (header == "localhost:")
