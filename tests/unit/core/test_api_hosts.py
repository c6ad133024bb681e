"""Which hosts applets may call."""

from __future__ import annotations

import pytest

from fieldbrook.core.api_hosts import is_allowed, is_named, is_public

ENTRIES = ("api.example.org", "*.example.net", "10.0.0.7")


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("api.example.org", True),
        ("API.Example.Org.", True),
        ("a.example.net", True),
        ("a.b.example.net", True),
        ("10.0.0.7", True),
        ("example.org", False),
        ("other.example.org", False),
        ("evil-api.example.org", False),
        ("api.example.org.evil.test", False),
        ("example.net", False),
        ("evilexample.net", False),
        ("10.0.0.70", False),
        ("127.0.0.1", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_a_host_is_allowed_by_its_name_or_by_that_of_its_domain(host: str, allowed: bool) -> None:
    assert is_allowed(host, ENTRIES) is allowed
    assert not is_allowed(host, ())


def test_only_an_entry_of_its_own_names_a_host() -> None:
    assert is_named("10.0.0.7", ENTRIES)
    assert not is_named("a.example.net", ENTRIES)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",  # noqa: S104
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.2.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
    ],
)
def test_addresses_of_the_inside_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)
