"""Properties of MQTT 5: the table compared with the standard's, and refused properties."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.gateway.mqtt.protocol.errors import (
    MalformedPacketError,
    ProtocolError,
    ProtocolViolationError,
)
from fieldbrook.gateway.mqtt.protocol.fields import string, varint
from fieldbrook.gateway.mqtt.protocol.properties import (
    NO_PROPERTIES,
    TABLE,
    Place,
    Properties,
    read_properties,
    write_properties,
)

# Table 2-4 of MQTT 5.0: number, name, type, packets.
STANDARD = """
01 payload_format_indicator          bit    publish will
02 message_expiry_interval           four   publish will
03 content_type                      text   publish will
08 response_topic                    topic  publish will
09 correlation_data                  bytes  publish will
0b subscription_identifiers          varint publish subscribe
11 session_expiry_interval           four   connect connack disconnect
12 assigned_client_identifier        text   connack
13 server_keep_alive                 two    connack
15 authentication_method             text   connect connack auth
16 authentication_data               bytes  connect connack auth
17 request_problem_information       bit    connect
18 will_delay_interval               four   will
19 request_response_information      bit    connect
1a response_information              text   connack
1c server_reference                  text   connack disconnect
1f reason_string                     text   connack puback pubrec pubrel pubcomp suback unsuback disconnect auth
21 receive_maximum                   two+   connect connack
22 topic_alias_maximum               two    connect connack
23 topic_alias                       two+   publish
24 maximum_qos                       bit    connack
25 retain_available                  bit    connack
26 user_properties                   pair   connect connack publish will puback pubrec pubrel pubcomp subscribe suback unsubscribe unsuback disconnect auth
27 maximum_packet_size               four+  connect connack
28 wildcard_subscription_available   bit    connack
29 subscription_identifier_available bit    connack
2a shared_subscription_available     bit    connack
"""  # noqa: E501 - one line is one row of the table
VALUES: dict[str, tuple[bytes, Any]] = {
    "bit": (b"\1", 1),
    "two": (b"\0\0", 0),
    "two+": (b"\1\2", 0x102),
    "four": (b"\xff\xff\xff\xff", 0xFFFF_FFFF),
    "four+": (b"\0\0\0\1", 1),
    "text": (b"\0\2\xc3\xa9", "é"),
    "topic": (b"\0\3a/b", "a/b"),
    "bytes": (b"\0\2\0\xff", b"\0\xff"),
    "varint": (b"\x80\1", (128,)),
    "pair": (b"\0\1k\0\1v", (("k", "v"),)),
}
ROWS = [line.split() for line in STANDARD.strip().splitlines()]
PLACES = {place.name.lower(): place for place in Place}


def section(*parts: bytes) -> bytes:
    """Return properties with their length in front."""
    body = b"".join(parts)
    return varint(len(body)) + body


def with_method(name: str, data: bytes) -> bytes:
    """Return properties with the authentication method, because authentication data are allowed
    only with it."""
    return data + b"\x15\0\0" if name == "authentication_data" else data


def test_the_table_has_the_properties_of_the_standard() -> None:
    assert [(f"{rule.identifier:02x}", rule.name) for rule in TABLE] == [
        (number, name) for number, name, *_ in ROWS
    ]


@pytest.mark.parametrize(("number", "name", "kind", "places"), [(*r[:3], r[3:]) for r in ROWS])
def test_each_property_is_read_where_the_standard_allows_it_and_refused_elsewhere(
    number: str, name: str, kind: str, places: list[str]
) -> None:
    written, value = VALUES[kind]
    data = section(with_method(name, bytes.fromhex(number) + written))
    for place_name, place in PLACES.items():
        if place_name in places:
            properties, end = read_properties(data + b"rest", 0, place)
            assert end == len(data)
            assert getattr(properties, name) == value
            again = write_properties(properties, place)
            assert read_properties(again, 0, place) == (properties, len(again))
        else:
            with pytest.raises(MalformedPacketError):
                read_properties(data, 0, place)
            with pytest.raises(ValueError, match="not allowed"):
                write_properties(Properties(**{name: value}), place)


@pytest.mark.parametrize(("number", "name", "kind", "places"), [(*r[:3], r[3:]) for r in ROWS])
def test_a_property_is_there_once_except_those_that_are_lists(
    number: str, name: str, kind: str, places: list[str]
) -> None:
    written, value = VALUES[kind]
    each = bytes.fromhex(number) + written
    for place in places:
        data = section(with_method(name, each + each))
        if name == "user_properties" or (name, place) == ("subscription_identifiers", "publish"):
            properties, _ = read_properties(data, 0, PLACES[place])
            assert getattr(properties, name) == value * 2
        else:
            with pytest.raises(ProtocolViolationError):
                read_properties(data, 0, PLACES[place])


@pytest.mark.parametrize(("number", "name", "kind", "places"), [(*r[:3], r[3:]) for r in ROWS])
def test_values_outside_of_a_propertys_range_are_refused(
    number: str, name: str, kind: str, places: list[str]
) -> None:
    bad = {
        "bit": [b"\2", b"\xff"],
        "two+": [b"\0\0"],
        "four+": [b"\0\0\0\0"],
        "varint": [b"\0", b"\x80\0", b"\xff\xff\xff\xff\x7f"],
        "text": [b"\0\1\0", b"\0\1\xff"],
        "topic": [b"\0\0", b"\0\1+", b"\0\3a/#", b"\0\1\0"],
        "pair": [b"\0\1\0\0\0", b"\0\0\0\1\xff"],
    }
    for written in bad.get(kind, []):
        for place in places:
            with pytest.raises(ProtocolError):
                read_properties(section(bytes.fromhex(number) + written), 0, PLACES[place])


@pytest.mark.parametrize(("number", "name", "kind", "places"), [(*r[:3], r[3:]) for r in ROWS])
def test_a_property_that_its_length_cuts_off_is_refused(
    number: str, name: str, kind: str, places: list[str]
) -> None:
    whole = bytes.fromhex(number) + VALUES[kind][0]
    for place in places:
        for size in range(1, len(whole)):
            # The following bytes would complete the value, but belong to the next field.
            data = bytes([size]) + whole + bytes(8)
            with pytest.raises(ProtocolError):
                read_properties(data, 0, PLACES[place])


def test_unknown_properties_are_malformed() -> None:
    known = {rule.identifier for rule in TABLE}
    for number in set(range(256)) - known:
        for place in Place:
            with pytest.raises(MalformedPacketError):
                read_properties(section(bytes([number, 0, 0, 0, 0])), 0, place)


def test_no_properties_are_one_byte_and_one_value() -> None:
    for place in Place:
        assert read_properties(b"\0rest", 0, place) == (NO_PROPERTIES, 1)
        assert read_properties(b"\0rest", 0, place)[0] is NO_PROPERTIES
        assert write_properties(NO_PROPERTIES, place) == b"\0"
        assert write_properties(Properties(), place) == b"\0"


def test_more_properties_than_the_packet_has_bytes_are_malformed() -> None:
    with pytest.raises(MalformedPacketError):
        read_properties(b"\xff\xff\xff\x7f" + bytes(9), 0, Place.CONNECT)


@given(st.lists(st.tuples(st.text("ab", max_size=2), st.text("ab", max_size=2)), max_size=9))
def test_user_properties_stay_in_their_order(pairs: list[tuple[str, str]]) -> None:
    data = section(*(b"\x26" + string(name) + string(value) for name, value in pairs))
    properties, _ = read_properties(data, 0, Place.PUBLISH)
    assert properties.user_properties == tuple(pairs)
    assert write_properties(properties, Place.PUBLISH) == data
