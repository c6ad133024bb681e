"""Parsing of nats-server's bytes, in pieces of any size."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.storage.replication.parser import Line, Message, Parser

HEAD = b"NATS/1.0 503 No Responders\r\n\r\n"
SENT = (
    b'INFO {"max_payload": 1}\r\n'
    b"MSG a.b 1 5\r\nhello\r\n"
    b"PING\r\n"
    + b"HMSG _I.7 2 reply %d %d\r\n" % (len(HEAD), len(HEAD))
    + HEAD
    + b"\r\n"
    + b"MSG c 1 0\r\n\r\n"
)
EXPECTED = [
    Line(b'INFO {"max_payload": 1}'),
    Message(b"a.b", b"", b"hello"),
    Line(b"PING"),
    Message(b"_I.7", HEAD, b""),
    Message(b"c", b"", b""),
]


@given(st.lists(st.integers(0, len(SENT))))
def test_bytes_mean_the_same_however_they_are_cut(cuts: list[int]) -> None:
    parser = Parser(1_000)
    found: list[Message | Line] = []
    edges = [0, *sorted(cuts), len(SENT)]
    for begin, end in itertools.pairwise(edges):
        found += parser.feed(SENT[begin:end])
    assert found == EXPECTED


def test_status_and_headers_are_read() -> None:
    message = Message(b"s", b"NATS/1.0\r\nNats-Sequence: 17\r\nOther: x\r\n\r\n", b"")
    assert (message.status, message.header(b"nats-sequence"), message.header(b"none")) == (
        0,
        b"17",
        b"",
    )
    assert Message(b"s", HEAD, b"").status == 503


@pytest.mark.parametrize(
    "sent",
    [
        b"MSG a 1 1001\r\n",
        b"MSG a 1 -1\r\n",
        b"HMSG a 1 9 5\r\n",
        b"MSG a 1 x\r\n",
        b"x" * (64 << 10),
    ],
)
def test_what_is_no_message_or_too_large_is_refused_before_it_is_kept(sent: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Parser(1_000).feed(sent)
