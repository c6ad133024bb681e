"""Plain requests on a port with TLS: which are sent on to https, and where to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.gateway.http.tls.plain import https_location


def request(line: str, *fields: str) -> bytes:
    return "\r\n".join([line, *fields, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("line", "host", "location"),
    [
        ("GET / HTTP/1.1", "node.example:3000", "https://node.example:3000/"),
        ("HEAD /a%20b?c=d&e HTTP/1.0", "NODE", "https://NODE/a%20b?c=d&e"),
        ("GET /x//y HTTP/1.1", "[::1]:3000", "https://[::1]:3000/x//y"),
    ],
)
def test_get_and_head_go_to_the_same_address_with_https(
    line: str, host: str, location: str
) -> None:
    for field in (f"Host: {host}", f"hOST:\t{host} "):
        assert https_location(request(line, "A: b", field)) == location.encode()


@pytest.mark.parametrize(
    "line",
    [
        "POST / HTTP/1.1",
        "DELETE / HTTP/1.1",
        "get / HTTP/1.1",
        "GET //evil.example/ HTTP/1.1",
        "GET http://evil.example/ HTTP/1.1",
        "GET * HTTP/1.1",
        "GET evil HTTP/1.1",
        "GET / HTTP/2.0",
        "GET /",
        "GET  / HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET /\x7f HTTP/1.1",
        "GET /\xe4 HTTP/1.1",
        "GET /\0 HTTP/1.1",
        "",
    ],
)
def test_all_else_is_refused(line: str) -> None:
    assert https_location(request(line, "Host: node.example")) is None


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ("Host: a", "Host: a"),
        ("Host: a b",),
        ("Host: a/b",),
        ("Host: user@a",),
        ("Host: a\rLocation: b",),
        ("Host: ",),
        ("Host : a",),
        ("Host: a:99999",),
        ("A: b", " Host: a"),
        ("Host: \xe4",),
        ("A: b\nHost: a",),
    ],
)
def test_a_request_without_exactly_one_sane_host_is_refused(fields: tuple[str, ...]) -> None:
    assert https_location(request("GET / HTTP/1.1", *fields)) is None


def test_an_incomplete_head_is_refused() -> None:
    assert https_location(request("GET / HTTP/1.1", "Host: a")[:-2]) is None
    assert https_location(b"") is None


@given(st.binary(max_size=200), st.binary(max_size=40))
def test_no_bytes_of_a_request_make_another_header(target: bytes, host: bytes) -> None:
    location = https_location(b"GET /" + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert location is None or all(0x21 <= byte <= 0x7E for byte in location)
