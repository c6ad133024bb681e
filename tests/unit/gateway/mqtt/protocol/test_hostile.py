"""Packets that are cut, changed, random or as expensive as possible."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.gateway.mqtt.protocol.decoding.decoder import (
    decode_client_packet,
    decode_server_packet,
)
from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.errors import ProtocolError, TooManyItemsError
from fieldbrook.gateway.mqtt.protocol.fields import string, varint
from fieldbrook.gateway.mqtt.protocol.framing import next_frame
from fieldbrook.gateway.mqtt.protocol.packets import Packet, Publish, Subscribe
from fieldbrook.gateway.mqtt.protocol.properties import ITEMS_LIMIT
from tests.unit.gateway.mqtt.protocol.packets_made import (
    CLIENT,
    EXAMPLES,
    IDS,
    SERVER,
    VERSIONS,
    client_packets,
    decode,
    server_packets,
)

MIB = 1 << 20
# Linear code takes a second for 1 MiB, quadratic code takes hours.
CPU_LIMIT_S = 20.0


def tried(side: str, version: int, first: int, body: bytes) -> Packet | None:
    """Return the packet, or None if it is refused; any other exception fails the test."""
    try:
        if side == SERVER:
            return decode_server_packet(version, first, body)
        return decode_client_packet(0 if first == 0x10 else version, first, body)
    except ProtocolError as error:
        assert error.code >= 0x80
        assert error.text
        return None


def written_again(side: str, version: int, packet: Packet) -> None:
    """Check that an accepted packet can be encoded and decoded again, so that it has nothing
    forbidden."""
    assert decode(side, version, encode(version, packet)) == packet


def parts(data: bytes) -> tuple[int, bytes]:
    """Return the first byte and the body of a valid packet."""
    frame = next_frame(data, 0)
    assert frame is not None
    return frame[0], data[frame[1] :]


@pytest.mark.parametrize(("side", "version", "data"), EXAMPLES, ids=IDS)
def test_a_body_cut_at_any_byte_is_a_packet_or_refused(
    side: str, version: int, data: bytes
) -> None:
    first, body = parts(data)
    for size in range(len(body)):
        packet = tried(side, version, first, body[:size])
        if packet is not None:
            written_again(side, version, packet)
            assert first >> 4 in (3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15)  # the end is optional


@pytest.mark.parametrize(("side", "version", "data"), EXAMPLES, ids=IDS)
def test_a_packet_with_any_byte_changed_is_a_packet_or_refused(
    side: str, version: int, data: bytes
) -> None:
    first, body = parts(data)
    for at, octet in enumerate(body):
        for change in (1, 2, 4, 8, 16, 32, 64, 128, 255, octet, octet ^ 0x2B, octet ^ 0x23):
            changed = body[:at] + bytes([octet ^ change]) + body[at + 1 :]
            packet = tried(side, version, first, changed)
            if packet is not None:
                written_again(side, version, packet)
    for other in range(256):
        tried(side, version, other, body)


@pytest.mark.parametrize(("side", "version", "data"), EXAMPLES, ids=IDS)
def test_a_packet_with_any_length_wrong_is_a_packet_or_refused(
    side: str, version: int, data: bytes
) -> None:
    first, body = parts(data)
    for at in range(len(body) - 1):
        length = int.from_bytes(body[at : at + 2])
        for wrong in {0, 1, length - 1, length + 1, len(body), 0xFFFF, 0xFF7F, 0x8000}:
            changed = body[:at] + (wrong & 0xFFFF).to_bytes(2) + body[at + 2 :]
            packet = tried(side, version, first, changed)
            if packet is not None:
                written_again(side, version, packet)


@pytest.mark.parametrize(("side", "version", "data"), EXAMPLES, ids=IDS)
def test_bytes_after_a_packet_are_refused_unless_they_are_payload(
    side: str, version: int, data: bytes
) -> None:
    first, body = parts(data)
    packet = tried(side, version, first, body + b"\xff")
    assert packet is None or isinstance(packet, Publish)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_damaged_packets_are_packets_or_refused(version: int, data: st.DataObject) -> None:
    side = data.draw(st.sampled_from([CLIENT, SERVER]))
    made = data.draw(client_packets(version) if side == CLIENT else server_packets(version))
    first, body = parts(encode(version, made))
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        if damaged:
            at = data.draw(st.integers(0, len(damaged) - 1))
            damaged[at] = data.draw(st.integers(0, 255))
    packet = tried(side, version, first, bytes(damaged))
    if packet is not None:
        written_again(side, version, packet)


@pytest.mark.parametrize("version", [0, *VERSIONS])
@pytest.mark.parametrize("side", [CLIENT, SERVER])
def test_random_bodies_are_packets_or_refused(side: str, version: int) -> None:
    chance = random.Random(version)
    for _ in range(20_000):
        first = chance.choice((0x10, 0x30, 0x32, 0x40, 0x82, 0xA2, 0xE0, 0xF0, 0x20, 0x90))
        body = chance.randbytes(chance.randrange(24))
        if chance.random() < 0.5:  # small numbers, so that lengths often fit
            body = bytes(octet % 12 for octet in body)
        packet = tried(side, version or 4, first, body)
        if packet is not None:
            written_again(side, version or 4, packet)


BIG: dict[str, tuple[int, int, Callable[[], bytes]]] = {
    "short filters": (4, 0x82, lambda: b"\0\1" + b"\0\1+\0" * (MIB // 4)),
    "short filters of an unsubscribe": (5, 0xA2, lambda: b"\0\1\0" + b"\0\1#" * (MIB // 3)),
    "filters of many levels": (
        5,
        0x82,
        lambda: b"\0\1\0" + (string("+/" * 32_767) + b"\0") * (MIB // 65_536),
    ),
    "empty user properties": (
        5,
        0x30,
        lambda: b"\0\1t" + varint(MIB // 5 * 5) + b"\x26\0\0\0\0" * (MIB // 5),
    ),
    "long user properties": (
        5,
        0x30,
        lambda: b"\0\1t" + varint(65_543 * 16) + (b"\x26" + string("x" * 65_535) + b"\0\3abc") * 16,
    ),
    "a filter cut at the end": (4, 0x82, lambda: b"\0\1" + b"\0\1+\0" * (MIB // 4) + b"\0"),
    "a deep topic": (4, 0x30, lambda: string("/" * 65_535) + bytes(MIB)),
    "shared filters": (5, 0x82, lambda: b"\0\1\0" + (string("$share/g/+") + b"\0") * (MIB // 13)),
}


@pytest.mark.parametrize("name", BIG)
def test_a_large_packet_costs_time_in_proportion_to_its_bytes(name: str) -> None:
    version, first, make = BIG[name]
    body = make()
    assert len(body) >= MIB * 0.9
    began = time.process_time()
    tried(CLIENT, version, first, body)
    assert time.process_time() - began < CPU_LIMIT_S


def test_a_stream_of_small_packets_costs_time_in_proportion_to_its_bytes() -> None:
    stream = b"\xc0\x00" * (MIB // 2)
    began = time.process_time()
    at = 0
    while at < len(stream):
        frame = next_frame(stream, at, MIB)
        assert frame is not None
        at = frame[2]
    assert time.process_time() - began < CPU_LIMIT_S


@pytest.mark.parametrize(
    ("version", "first", "head", "item"),
    [
        (4, 0x82, b"\0\1", b"\0\1+\0"),
        (5, 0x82, b"\0\1\0", b"\0\1+\0"),
        (5, 0xA2, b"\0\1\0", b"\0\1+"),
        (5, 0x30, b"\0\1t", b"\x26\0\0\0\0"),
        (5, 0x30, b"\0\1t", b"\x0b\1"),
    ],
)
def test_a_packet_has_a_bounded_number_of_items(
    version: int, first: int, head: bytes, item: bytes
) -> None:
    def body(count: int) -> bytes:
        items = item * count
        return head + (varint(len(items)) if first == 0x30 else b"") + items

    with pytest.raises(TooManyItemsError, match=str(ITEMS_LIMIT)):
        decode_client_packet(version, first, body(ITEMS_LIMIT + 1))
    if item[0] != 0x0B:  # which no client may send
        decode_client_packet(version, first, body(ITEMS_LIMIT))


LYING = {
    "a topic": (4, 0x30, b"\xff\xff" + b"t" * 10),
    "a will": (4, 0x10, b"\0\4MQTT\4\x06\0\0\0\1c\0\1w\xff\xff"),
    "all properties": (5, 0x30, b"\0\1t\xff\xff\xff\x7f"),
    "a property": (5, 0x30, b"\0\1t\x04\x09\xff\xff\0"),
    "a filter": (5, 0x82, b"\0\1\0\xff\xff"),
}


@pytest.mark.parametrize("name", LYING)
def test_a_length_that_has_not_arrived_costs_no_memory(name: str) -> None:
    version, first, body = LYING[name]
    tried(CLIENT, version, first, body)
    tracemalloc.start()
    try:
        assert tried(CLIENT, version, first, body) is None
        assert tracemalloc.get_traced_memory()[1] < 8192
    finally:
        tracemalloc.stop()


def test_many_filters_take_memory_in_proportion_to_their_bytes() -> None:
    body = b"\0\1" + b"\0\1+\0" * ITEMS_LIMIT
    tracemalloc.start()
    try:
        packet = tried(CLIENT, 4, 0x82, body)
        assert isinstance(packet, Subscribe)
        assert tracemalloc.get_traced_memory()[1] < 64 * len(body)
    finally:
        tracemalloc.stop()
