"""Hosts and ports in the form of headers and messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.host_port import HostPort, read_host_port


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost", "localhost", ""),
        ("LOCALHOST:3000", "localhost", "3000"),
        ("a.example:0443", "a.example", ""),
        ("a.example:80", "a.example", ""),
        ("a.example:", "a.example", ""),
        ("a.example.", "a.example.", ""),
        ("[0:0::1]:1883", "::1", "1883"),
        ("[2001:DB8::1]", "2001:db8::1", ""),
    ],
)
def test_a_host_and_port_have_one_form(text: str, host: str, port: str) -> None:
    assert read_host_port(text) == HostPort(host, port)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":80", "a b", "a@b", "a/b", "::1", "[::1", "[::1]x", "[fe80::1%eth0]", "[1.2.3.4]"),
        *("a:0", "a:65536", "a:1234567", "a:+1", "a:1:2", "é.example", "a" * 301, "[]", "a\n"),
    ],
)
def test_text_of_another_form_is_none(text: str) -> None:
    assert read_host_port(text) is None


@given(st.text(max_size=400))
def test_any_text_is_a_host_and_port_that_reads_as_itself_or_none(text: str) -> None:
    found = read_host_port(text)
    if found is not None:
        host = f"[{found.host}]" if ":" in found.host else found.host
        assert read_host_port(f"{host}:{found.port}") == found


def test_addresses_of_the_loopback_are_known() -> None:
    for text in ("localhost:1", "127.8.8.8", "[::1]:3000", "[::ffff:127.0.0.1]"):
        found = read_host_port(text)
        assert found is not None
        assert found.is_loopback
    for text in ("localhost.evil.example", "10.0.0.1", "[::2]", "[::ffff:10.0.0.1]"):
        found = read_host_port(text)
        assert found is not None
        assert not found.is_loopback
