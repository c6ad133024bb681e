"""The boundaries of packets that have arrived in part."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.gateway.mqtt.protocol.errors import (
    MalformedPacketError,
    PacketTooLargeError,
    ProtocolError,
)
from fieldbrook.gateway.mqtt.protocol.fields import MAX_VARINT, read_varint, varint
from fieldbrook.gateway.mqtt.protocol.framing import MAX_PACKET_BYTES, Frame, next_frame
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from tests.unit.gateway.mqtt.protocol.packets_made import EXAMPLES

LIMIT = 1 << 20
FLAGS = {
    **{kind: {0} for kind in range(1, 16)},
    3: {0, 1, 2, 3, 4, 5, 10, 11, 12, 13},
    6: {2},
    8: {2},
    10: {2},
}


def frames(data: bytes) -> list[Frame]:
    """Return all packets of a complete stream."""
    at, found = 0, []
    while at < len(data):
        frame = next_frame(data, at, LIMIT)
        assert frame is not None
        found.append(frame)
        at = frame[2]
    return found


def test_a_packet_is_found_by_its_length_whatever_follows() -> None:
    assert next_frame(b"\x30\x05\x00\x01txy\xc0\x00", 0, LIMIT) == (0x30, 2, 7)
    assert next_frame(b"\x30\x05\x00\x01txy\xc0\x00", 7, LIMIT) == (0xC0, 9, 9)
    assert next_frame(b"\x30\x05\x00\x01txy\xc0\x00", 9, LIMIT) is None


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_read(kind: type[bytes | bytearray | memoryview]) -> None:
    assert next_frame(kind(b"\xe0\x80\x01" + bytes(128)), 0, LIMIT) == (0xE0, 3, 131)


def test_only_the_types_and_flags_of_the_standard_begin_a_packet() -> None:
    for first in range(256):
        if first & 15 in FLAGS.get(first >> 4, ()):
            assert next_frame(bytes([first, 0]), 0, LIMIT) == (first, 2, 2)
            assert next_frame(bytes([first]), 0, LIMIT) is None
        else:
            for rest in (b"", b"\x00"):  # refused before its length has arrived
                with pytest.raises(MalformedPacketError):
                    next_frame(bytes([first]) + rest, 0, LIMIT)


@pytest.mark.parametrize(
    "length", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, MAX_VARINT]
)
def test_remaining_lengths_of_one_to_four_bytes_are_read(length: int) -> None:
    head = b"\x30" + varint(length)
    whole = len(head) + length
    if length:
        assert next_frame(head, 0, whole) is None
        with pytest.raises(PacketTooLargeError):
            next_frame(head, 0, whole - 1)
    assert read_varint(varint(length), 0) == (length, len(head) - 1)
    if length < LIMIT:
        assert next_frame(head + bytes(length), 0, whole) == (0x30, len(head), whole)


def test_a_length_of_five_bytes_is_malformed() -> None:
    for data in (b"\x30\x80\x80\x80\x80", b"\x30\xff\xff\xff\xff\x7f", b"\x30\x80\x80\x80\x80\x00"):
        with pytest.raises(MalformedPacketError):
            next_frame(data, 0, MAX_PACKET_BYTES)


def test_a_length_in_a_longer_form_than_needed_is_malformed_in_mqtt_5_only() -> None:
    padded = b"\xc0\x80\x80\x80\x00"
    assert next_frame(padded, 0, LIMIT) == (0xC0, 5, 5)
    with pytest.raises(MalformedPacketError):
        next_frame(padded, 0, LIMIT, shortest=True)
    assert next_frame(b"\x30\x80\x01" + bytes(128), 0, LIMIT, shortest=True) == (0x30, 3, 131)


def test_a_packet_above_the_limit_is_refused_before_its_body_arrives() -> None:
    with pytest.raises(PacketTooLargeError) as refused:
        next_frame(b"\x30\xff\xff\xff\x7f", 0, LIMIT)
    assert refused.value.code == ReasonCode.PACKET_TOO_LARGE
    assert next_frame(b"\x30\x08", 0, 10) is None
    with pytest.raises(PacketTooLargeError):
        next_frame(b"\x30\x09", 0, 10)


def test_a_length_that_exceeds_the_limit_is_refused_before_its_last_byte() -> None:
    assert next_frame(b"\x30\xff", 0, 200) is None
    with pytest.raises(PacketTooLargeError):
        next_frame(b"\x30\xff\xff", 0, 200)


def test_a_frame_costs_no_memory_however_long_it_says_it_is() -> None:
    buffer = bytearray(1 << 20)
    buffer[:5] = b"\x30\xff\xff\xff\x7f"
    tracemalloc.start()
    try:
        assert next_frame(buffer, 0, MAX_PACKET_BYTES) is None
        assert tracemalloc.get_traced_memory()[1] < 4096
    finally:
        tracemalloc.stop()


def test_all_valid_packets_are_found_in_one_stream() -> None:
    stream = b"".join(data for _, _, data in EXAMPLES)
    assert [end - start for _, start, end in frames(stream)] == [
        len(data) - 2 - (len(data) > 129) for _, _, data in EXAMPLES
    ]


def test_a_packet_cut_anywhere_is_incomplete() -> None:
    for _, _, data in EXAMPLES:
        for size in range(len(data)):
            assert next_frame(data[:size], 0, LIMIT) is None


@given(st.binary(max_size=20), st.integers(0, 4), st.booleans())
def test_random_bytes_are_a_packet_or_incomplete_or_an_error(
    data: bytes, start: int, shortest: bool
) -> None:
    try:
        frame = next_frame(data, start, 12, shortest)
    except ProtocolError as error:
        assert error.code in (ReasonCode.MALFORMED_PACKET, ReasonCode.PACKET_TOO_LARGE)
        return
    if frame is not None:
        first, body, end = frame
        assert data[start] == first
        assert start + 2 <= body <= start + 5
        assert body <= end <= len(data)
        assert end - start <= 12


@given(st.integers(0, MAX_VARINT))
def test_variable_byte_integers_come_back_in_their_shortest_form(value: int) -> None:
    written = varint(value)
    assert read_varint(written + b"\xff", 0) == (value, len(written))
    if len(written) < 4:
        padded = written[:-1] + bytes([written[-1] | 0x80, 0])
        with pytest.raises(MalformedPacketError):
            read_varint(padded, 0)


@pytest.mark.parametrize("value", [-1, MAX_VARINT + 1])
def test_what_is_no_variable_byte_integer_is_not_written(value: int) -> None:
    with pytest.raises(ValueError, match="variable byte integer"):
        varint(value)
