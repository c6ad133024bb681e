"""Which request heads the fast path parses, and what it reads from them."""

from __future__ import annotations

import pytest

from fieldbrook.gateway.events.request import NO_META
from fieldbrook.gateway.http.request_head import read_head
from fieldbrook.observability import spans

PATH = "/srv-applet-mgr/v0/event/NftMinter"

SMUGGLING = [
    "Content-Length: 2\r\nContent-Length: 2\r\n",
    "Content-Length: 2\r\nContent-Length: 3\r\n",
    "Content-Length: 2, 2\r\n",
    "Content-Length: +2\r\n",
    "Content-Length: 0x2\r\n",
    "Content-Length: -2\r\n",
    "Content-Length : 2\r\n",
    "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
    "Content-Length: 2\r\nTransfer-Encoding : chunked\r\n",
    "content-length: 2\r\ntransfer-encoding: identity\r\n",
    "Content-Length: 2\r\nX: a\nTransfer-Encoding: chunked\r\n",
    "Content-Length: 2\r\n folded: 1\r\n",
    "Content-Length: 2\r\nX: a\rY: b\r\n",
    "Content-Length: 2\r\nX: a\0b\r\n",
    "Content-Length: 2\r\nExpect: 100-continue\r\n",
    "Content-Length: 2\r\nConnection: close\r\n",
    "Content-Length: 2\r\nConnection: upgrade\r\nUpgrade: websocket\r\n",
    "Content-Length: 2\r\nContent-Encoding: gzip\r\n",
    "Content-Length: 2\r\nHost: y\r\n",
    "Content-Length: 2000000000000\r\n",
]


@pytest.mark.parametrize("headers", SMUGGLING)
def test_a_head_whose_body_could_be_read_in_two_ways_never_belongs_to_the_fast_path(
    headers: str,
) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode("latin-1")
    assert read_head(head) is None


@pytest.mark.parametrize(
    "line",
    [
        f"POST {PATH} HTTP/1.0",
        f"POST {PATH} HTTP/1.1 ",
        f"POST  {PATH} HTTP/1.1",
        f"post {PATH} HTTP/1.1",
        f"POST http://x{PATH} HTTP/1.1",
        f"POST {PATH}#x HTTP/1.1",
    ],
)
def test_an_odd_request_line_never_belongs_to_the_fast_path(line: str) -> None:
    assert read_head(f"{line}\r\nHost: x\r\nContent-Length: 2\r\n\r\n".encode()) is None


def test_a_request_without_host_or_length_never_belongs_to_the_fast_path() -> None:
    assert read_head(f"POST {PATH} HTTP/1.1\r\nContent-Length: 2\r\n\r\n".encode()) is None
    assert read_head(f"POST {PATH} HTTP/1.1\r\nHost: x\r\n\r\n".encode()) is None


def test_keep_alive_and_authorization_stay_on_the_fast_path() -> None:
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: x\r\nConnection: Keep-Alive\r\n"
        "Authorization: Bearer x\r\ncontent-length:\t17 \r\n\r\n"
    )
    found = read_head(head.encode())
    assert found is not None
    assert (found.project_name, found.body_length) == ("NftMinter", 17)


CAPTURED = [
    (
        "POST /srv-applet-mgr/v0/event/eth_0xabc_demo?eventType=DA-TA_PU-SH&timestamp=1795233228152"
        " HTTP/1.1\r\nAccept: application/json, text/plain, */*\r\n"
        "Content-Type: application/json\r\nAuthorization: Bearer w3b_KEY\r\n"
        "User-Agent: axios/1.21.1\r\nContent-Length: 110\r\n"
        "Accept-Encoding: gzip, compress, deflate, br\r\nHost: 127.0.0.1:18990\r\n"
        "Connection: keep-alive\r\n\r\n"
    ),
    (
        "POST /srv-applet-mgr/v0/event/eth_0xabc_demo?eventType=DA-TA_PU-SH&timestamp=1795233228"
        " HTTP/1.1\r\nHost: 127.0.0.1:18990\r\nUser-Agent: python-requests/2.34.2\r\n"
        "Accept-Encoding: gzip, deflate\r\nAccept: */*\r\nConnection: keep-alive\r\n"
        "Authorization: Bearer w3b_KEY\r\nContent-Type: application/octet-stream\r\n"
        "Content-Length: 100\r\n\r\n"
    ),
    (
        "POST /srv-applet-mgr/v0/event/NftMinter HTTP/1.1\r\nHost: 127.0.0.1:18990\r\n"
        "User-Agent: curl/7.88.1\r\nAccept: */*\r\nContent-Type: text/plain\r\n"
        "Content-Length: 150\r\n\r\n"
    ),
]


@pytest.mark.parametrize("head", CAPTURED)
def test_the_heads_of_real_clients_stay_on_the_fast_path(head: str) -> None:
    assert read_head(head.encode()) is not None


def test_two_tokens_or_a_fragment_are_tornados() -> None:
    two = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAuthorization: b\r\n"
    assert read_head(f"{two}Content-Length: 1\r\n\r\n".encode()) is None
    line = f"POST {PATH}?eventType=a#b HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"
    assert read_head(line.encode()) is None


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def with_parents(*parents: str) -> bytes:
    fields = "".join(f"traceparent: {parent}\r\n" for parent in parents)
    return f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n{fields}\r\n".encode()


def test_a_traceparent_is_not_read_where_no_event_is_traced() -> None:
    head = read_head(with_parents(PARENT))
    assert head is not None
    assert head.meta is NO_META
    assert not head.changing


def test_a_traceparent_belongs_to_one_request_and_two_count_as_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spans, "here", spans.Spans(1.0, 64))
    head = read_head(with_parents(PARENT))
    assert head is not None
    assert head.meta.traceparent == PARENT
    assert head.changing
    twice = read_head(with_parents(PARENT, PARENT))
    assert twice is not None
    assert twice.meta is NO_META
