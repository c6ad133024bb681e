"""Packets to bytes and back, for everything that the standards allow."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from fieldbrook.gateway.mqtt.protocol import encoding
from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_311,
    Auth,
    ClientPacket,
    ConnAck,
    Connect,
    Disconnect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ServerPacket,
    SubAck,
    UnsubAck,
)
from fieldbrook.gateway.mqtt.protocol.properties import (
    NO_PROPERTIES,
    Properties,
)
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from tests.unit.gateway.mqtt.protocol.packets_made import (
    CLIENT,
    EXAMPLES,
    SERVER,
    VERSIONS,
    client_packets,
    decode,
    publishes,
    server_packets,
)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_every_packet_of_a_client_comes_back_from_its_bytes(
    version: int, data: st.DataObject
) -> None:
    packet = data.draw(client_packets(version))
    assert decode(CLIENT, version, encode(version, packet)) == packet


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_every_packet_of_a_server_comes_back_from_its_bytes(
    version: int, data: st.DataObject
) -> None:
    packet = data.draw(server_packets(version))
    assert decode(SERVER, version, encode(version, packet)) == packet


def test_the_examples_have_every_packet_and_every_property() -> None:
    packets = [decode(side, version, data) for side, version, data in EXAMPLES]
    assert {type(packet) for packet in packets} == set(get_args(ClientPacket | ServerPacket))
    sections = [getattr(packet, "properties", NO_PROPERTIES) for packet in packets]
    sections += [p.will.properties for p in packets if isinstance(p, Connect) and p.will]
    for each in fields(Properties):
        given = [getattr(section, each.name) for section in sections]
        assert any(value not in (None, ()) for value in given), each.name


def test_the_examples_come_back_from_their_bytes() -> None:
    for side, version, data in EXAMPLES:
        assert encode(version, decode(side, version, data)) == data


@pytest.mark.parametrize("size", [0, 117, 118, 120, 121, 16_370, 16_380, 2_097_140, 2_097_152])
@pytest.mark.parametrize("version", VERSIONS)
def test_payloads_at_the_edges_of_the_remaining_length_come_back(version: int, size: int) -> None:
    for qos, packet_id in ((0, 0), (1, 1)):
        packet = Publish("topic", bytes(size), qos, packet_id=packet_id)
        assert decode(CLIENT, version, encode(version, packet)) == packet


@given(publishes(VERSION_311, SERVER))
def test_the_fast_encoder_of_3_1_1_writes_what_the_general_one_writes(packet: Publish) -> None:
    fast = encoding.publish_311(
        packet.topic.encode(),
        packet.payload,
        packet.qos,
        packet.packet_id,
        packet.dup,
        packet.retain,
    )
    assert fast == encode(VERSION_311, packet)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("packet_id", [1, 0x1234, 0xFFFF])
def test_a_success_is_four_bytes_in_both_versions(version: int, packet_id: int) -> None:
    number = packet_id.to_bytes(2)
    assert encoding.puback(packet_id) == encode(version, PubAck(packet_id)) == b"\x40\2" + number
    assert encode(version, PubRec(packet_id)) == b"\x50\2" + number
    assert encode(version, PubRel(packet_id)) == b"\x62\2" + number
    assert encode(version, PubComp(packet_id)) == b"\x70\2" + number


def test_over_3_1_1_what_only_5_has_is_left_out() -> None:
    why = Properties(reason_string="x")
    assert encode(4, PubAck(1, ReasonCode.NOT_AUTHORIZED, why)) == b"\x40\x02\x00\x01"
    assert encode(4, SubAck(1, (0, 2, 0x8F), why)) == b"\x90\x05\x00\x01\x00\x02\x80"
    assert encode(4, UnsubAck(1, (0, 0x11), why)) == b"\xb0\x02\x00\x01"
    assert encode(4, ConnAck(False, ReasonCode.BANNED, why)) == b"\x20\x02\x00\x05"
    assert encode(4, Disconnect(ReasonCode.SERVER_BUSY, why)) == b"\xe0\x00"
    assert (
        encode(4, Publish("t", b"", properties=Properties(topic_alias=1))) == b"\x30\x03\x00\x01t"
    )


def test_equal_properties_are_written_alike_whether_shared_or_not() -> None:
    assert encode(5, PubAck(1, properties=Properties())) == b"\x40\x04\x00\x01\x00\x00"
    assert encode(5, PubAck(1, ReasonCode.NOT_AUTHORIZED)) == b"\x40\x03\x00\x01\x87"
    assert Properties() == NO_PROPERTIES


@pytest.mark.parametrize(
    "packet",
    [
        Publish("x" * 65_536, b""),
        Publish("t", b"", properties=Properties(server_keep_alive=1)),
        Publish("t", b"", properties=Properties(content_type="\0")),
        Publish("t", b"", properties=Properties(correlation_data=bytes(65_536))),
        Publish("t", b"", properties=Properties(subscription_identifiers=(268_435_456,))),
        Publish("t\ud800", b""),
        SubAck(1, (256,)),
        PubAck(1, properties=Properties(subscription_identifiers=(1,))),
        Connect(5, "\ud800"),
        Connect(5, "\0"),
    ],
    ids=repr,
)
def test_what_fits_into_no_field_is_refused_when_it_is_written(packet: Publish) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(5, packet)


def test_an_integer_that_fits_into_no_field_is_refused_when_it_is_written() -> None:
    for packet in (PubAck(65_536), Publish("t", b"", 1, packet_id=-1)):
        with pytest.raises(OverflowError):
            encode(5, packet)


def test_3_1_1_has_no_auth() -> None:
    with pytest.raises(ValueError, match="AUTH"):
        encode(4, Auth())


def test_a_password_is_not_part_of_what_is_printed() -> None:
    packet = Connect(
        5,
        "c",
        password=b"hunter2",
        properties=Properties(authentication_method="m", authentication_data=b"hunter2"),
    )
    assert "hunter2" not in repr(packet)
