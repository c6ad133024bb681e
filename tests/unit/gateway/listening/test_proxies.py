"""The address of a client that comes through a reverse proxy."""

from __future__ import annotations

import pytest

from fieldbrook.gateway.listening.proxies import Proxies

PROXIES = Proxies("127.0.0.1, 10.0.0.0/8, 2001:db8::/32")


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("127.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("::ffff:127.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("2001:db8::9%eth0", ["2001:db9::1"], "2001:db9::1"),
        ("127.0.0.1", ["203.0.113.1, 198.51.100.7"], "198.51.100.7"),
        ("127.0.0.1", ["198.51.100.7, 10.1.2.3"], "198.51.100.7"),
        ("127.0.0.1", ["203.0.113.1", "198.51.100.7", "10.1.2.3"], "198.51.100.7"),
        ("127.0.0.1", ["10.1.2.3"], "127.0.0.1"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["unknown"], "127.0.0.1"),
        ("127.0.0.1", ["203.0.113.1, a\x1b[31mb"], "127.0.0.1"),
        ("127.0.0.1", ["203.0.113.1, "], "127.0.0.1"),
        ("198.51.100.7", ["203.0.113.1"], "198.51.100.7"),
        ("0.0.0.0", ["203.0.113.1"], "0.0.0.0"),  # noqa: S104
        ("", ["203.0.113.1"], ""),
    ],
)
def test_a_request_is_of_the_client_that_the_last_proxy_has_seen(
    peer: str, forwarded: list[str], client: str
) -> None:
    assert PROXIES.client(peer, forwarded) == client


def test_nobody_is_believed_without_a_list() -> None:
    assert Proxies().client("127.0.0.1", ["203.0.113.1"]) == "127.0.0.1"


def test_a_connection_of_a_proxy_counts_for_no_client() -> None:
    assert PROXIES.holder("10.1.2.3") == ""
    assert PROXIES.holder("198.51.100.7") == "198.51.100.7"
