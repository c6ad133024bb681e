"""The node's reader of protobuf messages, compared with protobuf's own."""

from __future__ import annotations

import time

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldbrook.core.errors import MalformedMessageError
from fieldbrook.gateway.events.protobuf import decode_event
from tests.support.protobuf import Event


def varint(number: int) -> bytes:
    digits = b""
    while number >= 0x80:
        digits, number = digits + bytes([number & 0x7F | 0x80]), number >> 7
    return digits + bytes([number])


def field(number: int, kind: int, content: bytes) -> bytes:
    length = varint(len(content)) if kind == 2 else b""
    return varint(number << 3 | kind) + length + content


numbers = st.one_of(st.integers(1, 6), st.integers(1, (1 << 29) - 1))
scalars = st.one_of(
    st.builds(field, numbers, st.just(0), st.integers(0, (1 << 64) - 1).map(varint)),
    st.builds(field, numbers, st.just(1), st.binary(min_size=8, max_size=8)),
    st.builds(field, numbers, st.just(5), st.binary(min_size=4, max_size=4)),
    st.builds(field, numbers, st.just(2), st.binary(max_size=6)),
    st.builds(field, numbers, st.just(2), st.text(max_size=6).map(str.encode)),
)
groups = st.builds(
    lambda number, parts: field(number, 3, b"".join(parts)) + varint(number << 3 | 4),
    numbers,
    st.lists(scalars, max_size=2),
)
inner = st.one_of(scalars, groups)
headers = st.builds(lambda parts: field(1, 2, b"".join(parts)), st.lists(inner, max_size=4))
messages = st.lists(st.one_of(inner, headers), max_size=4).map(b"".join)


def changed(body: bytes, at: int, byte: int) -> bytes:
    at %= len(body) + 1
    return body[:at] + bytes([byte]) + body[at + 1 :]


def check(body: bytes) -> None:
    expected = Event()
    try:
        expected.ParseFromString(body)
    except DecodeError:
        with pytest.raises(MalformedMessageError, match="not protobuf"):
            decode_event(body)
        return
    meta, payload = decode_event(body)
    header = expected.header
    assert (meta.event_type, meta.event_id) == (header.event_type, header.event_id)
    assert meta.timestamp == str(header.pub_time)
    assert payload == expected.payload


@settings(max_examples=300)
@given(messages)
def test_messages_are_read_as_protobuf_reads_them(body: bytes) -> None:
    check(body)


@settings(max_examples=300)
@given(messages, st.integers(0, 200), st.integers(0, 255))
def test_damaged_messages_are_refused_as_protobuf_refuses_them(
    body: bytes, at: int, byte: int
) -> None:
    check(body[: at % (len(body) + 1)])
    check(changed(body, at, byte))


@given(st.binary(max_size=40))
def test_random_bytes_are_judged_as_protobuf_judges_them(body: bytes) -> None:
    check(body)


@pytest.mark.parametrize("time", [0, 1, -1, (1 << 63) - 1, -(1 << 63)])
def test_times_of_64_bits_keep_their_sign(time: int) -> None:
    event = Event()
    event.header.pub_time = time
    assert decode_event(event.SerializeToString())[0].timestamp == str(time)


def test_a_hundred_groups_within_each_other_are_read_and_more_are_refused() -> None:
    for depth in (99, 100, 101, 5_000):
        check(varint(9 << 3 | 3) * depth + varint(9 << 3 | 4) * depth)


def test_a_message_of_thousands_of_fields_is_refused_at_once() -> None:
    header = field(1, 2, field(1, 2, b"DEFAULT"))
    assert decode_event(field(9, 0, b"\0") * 900 + header)[0].event_type == "DEFAULT"
    many = (1 << 20) // 4
    for body in (
        field(9, 0, b"\0") * many,
        field(1, 2, field(9, 0, b"\0")) * many,
        field(1, 2, field(9, 0, b"\0") * many),
        (varint(9 << 3 | 3) + varint(9 << 3 | 4)) * many,
    ):
        began = time.process_time()
        with pytest.raises(MalformedMessageError, match="more than 1000 fields"):
            decode_event(body)
        assert time.process_time() - began < 0.2
