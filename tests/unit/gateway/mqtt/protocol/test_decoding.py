"""What the standards forbid, packet by packet, and edge cases that they allow."""

from __future__ import annotations

import pytest

from fieldbrook.gateway.mqtt.protocol.decoding.decoder import decode_client_packet
from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.errors import (
    ClientIdentifierError,
    MalformedPacketError,
    ProtocolError,
    ProtocolViolationError,
    UnsupportedVersionError,
)
from fieldbrook.gateway.mqtt.protocol.fields import binary, string
from fieldbrook.gateway.mqtt.protocol.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Will,
)
from fieldbrook.gateway.mqtt.protocol.properties import Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import (
    WITHOUT_CONNACK_311,
    ConnectReturnCode,
    ReasonCode,
    connack_311,
)
from tests.unit.gateway.mqtt.protocol.packets_made import CLIENT, EXAMPLES, SERVER, decode

ID = b"\x00\x07"
BOTH = (4, 5)


def packet(first: int, *parts: bytes) -> bytes:
    """Return a short packet with the right length."""
    body = b"".join(parts)
    assert len(body) < 128
    return bytes([first, len(body)]) + body


def connect(
    version: int = 4,
    flags: int = 0x02,
    *payload: bytes,
    name: str = "MQTT",
    properties: bytes = b"\0",
    client_id: bytes = b"\0\1c",
) -> bytes:
    """Return a CONNECT; `payload` follows the client identifier."""
    head = string(name) + bytes([version, flags, 0, 60])
    return packet(0x10, head, properties if version == 5 else b"", client_id, *payload)


def refusal(data: bytes, version: int = 4, side: str = CLIENT) -> ProtocolError:
    """Return the reason for which a packet is refused."""
    with pytest.raises(ProtocolError) as refused:
        decode(side, version, data)
    return refused.value


def accepted(data: bytes, version: int = 4, side: str = CLIENT) -> object:
    """Decode a packet."""
    return decode(side, version, data)


# Strings

BAD_UTF8 = {
    "a surrogate": b"\xed\xa0\x80",
    "both halves of a surrogate pair": b"\xed\xa0\x81\xed\xb0\x80",
    "a lone continuation byte": b"\x80",
    "an overlong slash": b"\xc0\xaf",
    "a sequence that is cut": b"\xe2\x82",
    "a code point above U+10FFFF": b"\xf4\x90\x80\x80",
    "a byte that never occurs": b"\xff",
}


@pytest.mark.parametrize("bad", [*BAD_UTF8.values(), b"a\0b"], ids=[*BAD_UTF8, "U+0000"])
@pytest.mark.parametrize("version", BOTH)
def test_a_string_that_is_not_well_formed_is_refused_wherever_it_is(
    version: int, bad: bytes
) -> None:
    text = binary(bad)
    five = version == 5
    no = b"\0" if five else b""
    places = [
        packet(0x30, text, no),
        packet(0x82, ID, no, text, b"\0"),
        packet(0xA2, ID, no, text),
        connect(version, 0x02, client_id=text),
        connect(version, 0x06, no, text, binary(b"")),  # will topic
        connect(version, 0x82, text),  # user name
        packet(0x10, text, bytes([version, 2, 0, 0]), no, b"\0\1c"),  # name of the protocol
    ]
    if five:
        user = b"\x26" + text + string("")
        value = b"\x26" + string("") + text
        for each in (b"\x1f" + text, user, value):
            places.append(packet(0x40, ID, b"\x00", bytes([len(each)]), each))
        for number in (0x03, 0x08):  # content type, response topic
            each = bytes([number]) + text
            places.append(packet(0x30, string("t"), bytes([len(each)]), each))
    for data in places:
        assert isinstance(refusal(data, version), MalformedPacketError), data


@pytest.mark.parametrize("version", BOTH)
def test_a_byte_order_mark_and_other_unusual_characters_stay_in_their_string(version: int) -> None:
    for topic in ("\ufeffa", "a\ufeff", "\x01\x7f\x9f\ufffe", "\U0010ffff", "é", "e\u0301", " "):
        data = encode(version, Publish(topic, b""))
        assert accepted(data, version) == Publish(topic, b"")


# CONNECT


def test_the_first_packet_has_to_be_a_connect() -> None:
    for _, _, data in EXAMPLES:
        if data[0] != 0x10:
            with pytest.raises(ProtocolViolationError):
                decode_client_packet(0, data[0], data[2:])


@pytest.mark.parametrize("version", BOTH)
def test_a_second_connect_is_refused(version: int) -> None:
    data = connect(version)
    with pytest.raises(ProtocolViolationError):
        decode_client_packet(version, 0x10, data[2:])


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("first", [0x20, 0x90, 0xB0, 0xD0])
def test_packets_of_servers_are_refused_from_clients(version: int, first: int) -> None:
    with pytest.raises(ProtocolViolationError):
        decode_client_packet(version, first, b"\0\1\0")


@pytest.mark.parametrize("first", [0x10, 0x82, 0xA2, 0xC0])
@pytest.mark.parametrize("version", BOTH)
def test_packets_of_clients_are_refused_from_servers(version: int, first: int) -> None:
    refused = refusal(packet(first, b"\0\1\0"), version, SERVER)
    assert isinstance(refused, ProtocolViolationError)


@pytest.mark.parametrize(
    ("name", "level", "answer"),
    [
        ("MQTT", 3, 4),
        ("MQTT", 0, 4),
        ("MQTT", 6, 5),
        ("MQTT", 0x84, 4),  # a bridge of mosquitto
        ("MQTT", 0x85, 4),
        ("MQIsdp", 4, 0),
        ("mqtt", 4, 0),
        ("MQTT ", 5, 0),
        ("", 4, 0),
        ("HTTP", 5, 0),
    ],
)
def test_other_protocols_and_versions_are_refused_and_answered_where_a_version_is_recognised(
    name: str, level: int, answer: int
) -> None:
    refused = refusal(connect(level, name=name))
    assert isinstance(refused, UnsupportedVersionError)
    assert refused.version == answer
    assert connack_311(refused.code) == ConnectReturnCode.UNACCEPTABLE_PROTOCOL_VERSION


def test_a_connect_of_3_1_is_read_as_one_of_3_1_1() -> None:
    assert accepted(connect(3, name="MQIsdp"), 0) == accepted(connect(4), 0)


@pytest.mark.parametrize("version", BOTH)
def test_the_reserved_flag_of_connect_is_refused(version: int) -> None:
    assert isinstance(refusal(connect(version, 0x03)), MalformedPacketError)


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("flags", [0x0A, 0x12, 0x1A, 0x22, 0x3A])
def test_quality_and_retain_of_a_will_that_is_not_there_are_refused(
    version: int, flags: int
) -> None:
    assert isinstance(refusal(connect(version, flags)), MalformedPacketError)


@pytest.mark.parametrize("version", BOTH)
def test_a_will_of_quality_3_is_refused(version: int) -> None:
    no = b"\0" if version == 5 else b""
    payload = (no, string("w"), binary(b""))
    assert isinstance(refusal(connect(version, 0x1E, *payload)), MalformedPacketError)
    for qos in (0, 1, 2):
        for retain in (False, True):
            flags = 0x06 | qos << 3 | retain << 5
            made = accepted(connect(version, flags, *payload), version)
            assert isinstance(made, Connect)
            assert made.will == Will("w", b"", qos, retain)


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("topic", ["", "a/+", "#", "a#b"])
def test_a_will_topic_that_is_none_is_refused(version: int, topic: str) -> None:
    no = b"\0" if version == 5 else b""
    data = connect(version, 0x06, no, string(topic), binary(b""))
    assert isinstance(refusal(data), MalformedPacketError)


@pytest.mark.parametrize("version", BOTH)
def test_fields_that_the_flags_promise_have_to_be_there_and_no_others(version: int) -> None:
    no = b"\0" if version == 5 else b""
    will, name, password = no + string("w") + binary(b"gone"), string("user"), binary(b"pass")
    fields = {0x04: will, 0x80: name, 0x40: password}
    for flags in range(8):
        wanted = [flag for at, flag in enumerate(fields) if flags >> at & 1]
        if version == 4 and 0x40 in wanted and 0x80 not in wanted:
            continue
        value = 0x02 | sum(wanted)
        payload = [fields[flag] for flag in wanted]
        made = accepted(connect(version, value, *payload), version)
        assert isinstance(made, Connect)
        assert (made.will is not None) == (0x04 in wanted)
        assert made.username == ("user" if 0x80 in wanted else None)
        assert made.password == (b"pass" if 0x40 in wanted else None)
        assert isinstance(refusal(connect(version, value, *payload, b"\0")), MalformedPacketError)
        if payload:
            missing = connect(version, value, *payload[:-1])
            assert isinstance(refusal(missing), MalformedPacketError)


def test_a_password_without_a_user_name_is_refused_in_3_1_1_and_accepted_in_5() -> None:
    assert isinstance(refusal(connect(4, 0x42, binary(b"token"))), MalformedPacketError)
    made = accepted(connect(5, 0x42, binary(b"token")), 5)
    assert isinstance(made, Connect)
    assert (made.username, made.password) == (None, b"token")


def test_a_persistent_session_without_a_client_identifier_is_refused_in_3_1_1() -> None:
    refused = refusal(connect(4, 0x00, client_id=b"\0\0"))
    assert isinstance(refused, ClientIdentifierError)
    assert refused.version == 4
    assert connack_311(refused.code) == ConnectReturnCode.IDENTIFIER_REJECTED
    for version, flags in ((4, 0x02), (5, 0x02), (5, 0x00)):
        made = accepted(connect(version, flags, client_id=b"\0\0"), version)
        assert isinstance(made, Connect)
        assert made.client_id == ""


@pytest.mark.parametrize("version", BOTH)
def test_client_identifiers_of_any_characters_and_length_are_accepted(version: int) -> None:
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for client_id in (*letters, letters[:23], letters, "ü/+#$ ", "x" * 65_535):
        assert accepted(encode(version, Connect(version, client_id)), version) == Connect(
            version, client_id
        )


@pytest.mark.parametrize("version", BOTH)
def test_an_error_in_a_connect_names_the_version_in_which_it_is_answered(version: int) -> None:
    whole = connect(version, 0xC6, b"\0" * (version == 5), string("w"), b"\0\0\0\0\0\0")
    for size in range(13, len(whole)):
        cut = bytes([0x10, size - 2]) + whole[2:size]
        assert refusal(cut).version == version
    for data in (connect(version, 0x03), connect(version, 0x02, b"\0"), connect(version, 0x1E)):
        assert refusal(data).version == version
    assert refusal(packet(0x10, b"\0\4MQT")).version == 0


def test_no_return_code_of_3_1_1_says_that_a_connect_is_malformed() -> None:
    assert refusal(connect(4, 0x03)).code in WITHOUT_CONNACK_311
    assert ReasonCode.NOT_AUTHORIZED not in WITHOUT_CONNACK_311


def test_authentication_data_need_a_method() -> None:
    data = b"\x16" + binary(b"x")
    method = b"\x15" + string("m")
    alone = connect(5, properties=bytes([len(data)]) + data)
    assert isinstance(refusal(alone), ProtocolViolationError)
    both = connect(5, properties=bytes([len(data + method)]) + data + method)
    assert isinstance(accepted(both, 5), Connect)


# PUBLISH


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("topic", ["a/+", "+", "#", "a/#", "a+", "#b"])
def test_a_topic_with_a_wildcard_is_refused(version: int, topic: str) -> None:
    no = b"\0" if version == 5 else b""
    assert isinstance(refusal(packet(0x30, string(topic), no), version), MalformedPacketError)


def test_an_empty_topic_is_refused_without_an_alias() -> None:
    assert isinstance(refusal(packet(0x30, b"\0\0")), MalformedPacketError)
    assert isinstance(refusal(packet(0x30, b"\0\0\0"), 5), ProtocolViolationError)
    alias = packet(0x30, b"\0\0\3\x23\0\1hi")
    assert accepted(alias, 5) == Publish("", b"hi", properties=Properties(topic_alias=1))


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("first", [0x32, 0x34, 0x3A, 0x3D])
def test_a_message_that_will_be_acknowledged_needs_a_packet_identifier(
    version: int, first: int
) -> None:
    no = b"\0" if version == 5 else b""
    zero = refusal(packet(first, string("t"), b"\0\0", no), version)
    assert isinstance(zero, ProtocolViolationError)
    for missing in (b"", b"\1"):
        data = packet(first, string("t"), missing)
        assert isinstance(refusal(data, version), MalformedPacketError)


def test_a_message_of_quality_0_has_no_packet_identifier() -> None:
    assert accepted(packet(0x30, string("t"), b"\0\7")) == Publish("t", b"\0\7")
    assert accepted(packet(0x30, string("t"), b"\0\0\7"), 5) == Publish("t", b"\0\7")


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("first", [0x36, 0x37, 0x3E, 0x3F, 0x38, 0x39])
def test_quality_3_and_a_repeated_message_of_quality_0_are_refused(
    version: int, first: int
) -> None:
    with pytest.raises(MalformedPacketError):
        decode_client_packet(version, first, string("t") + ID + b"\0")


def test_a_subscription_identifier_is_refused_from_clients_and_read_from_servers() -> None:
    data = packet(0x30, string("t"), b"\2\x0b\5")
    assert isinstance(refusal(data, 5), ProtocolViolationError)
    made = accepted(data, 5, SERVER)
    assert made == Publish("t", b"", properties=Properties(subscription_identifiers=(5,)))


@pytest.mark.parametrize("version", BOTH)
def test_a_topic_longer_than_the_packet_is_refused(version: int) -> None:
    for data in (packet(0x30), packet(0x30, b"\0"), packet(0x30, b"\0\5topi"), b"\x30\2\xff\xff"):
        assert isinstance(refusal(data, version), MalformedPacketError)


@pytest.mark.parametrize("topic", ["a+b", "#", ""])
def test_a_response_topic_that_is_none_is_refused(topic: str) -> None:
    each = b"\x08" + string(topic)
    data = packet(0x30, string("t"), bytes([len(each)]), each)
    assert isinstance(refusal(data, 5), MalformedPacketError)


# Acknowledgements


@pytest.mark.parametrize("first", [0x40, 0x50, 0x62, 0x70])
@pytest.mark.parametrize("version", BOTH)
def test_an_acknowledgement_of_no_packet_is_refused(version: int, first: int) -> None:
    assert isinstance(refusal(packet(first, b"\0\0"), version), ProtocolViolationError)
    assert isinstance(refusal(packet(first, b"\1"), version), MalformedPacketError)
    assert isinstance(refusal(packet(first), version), MalformedPacketError)


@pytest.mark.parametrize("first", [0x40, 0x50, 0x62, 0x70])
def test_an_acknowledgement_of_3_1_1_is_a_packet_identifier_only(first: int) -> None:
    for more in (b"\0", b"\0\0", b"\x87"):
        assert isinstance(refusal(packet(first, ID, more)), MalformedPacketError)


def test_only_the_reason_codes_of_a_packet_are_accepted_in_it() -> None:
    received = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
    released = {0x00, 0x92}
    for first, allowed in ((0x40, received), (0x50, received), (0x62, released), (0x70, released)):
        for code in range(256):
            for rest in (b"", b"\0"):
                data = packet(first, ID, bytes([code]), rest)
                if code in allowed:
                    made = accepted(data, 5)
                    assert made.code == code  # type: ignore[attr-defined]  # one of four types
                else:
                    assert isinstance(refusal(data, 5), ProtocolViolationError)


def test_a_short_acknowledgement_is_a_success() -> None:
    assert accepted(packet(0x40, ID), 5) == PubAck(7)
    assert accepted(packet(0x40, ID, b"\x87"), 5) == PubAck(7, ReasonCode.NOT_AUTHORIZED)
    assert accepted(packet(0x40, ID, b"\x87\0"), 5) == PubAck(7, ReasonCode.NOT_AUTHORIZED)
    assert isinstance(refusal(packet(0x40, ID, b"\x87\0\0"), 5), MalformedPacketError)


# SUBSCRIBE and UNSUBSCRIBE


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("first", [0x82, 0xA2])
def test_a_subscribe_or_unsubscribe_without_a_filter_is_refused(version: int, first: int) -> None:
    no = b"\0" if version == 5 else b""
    assert isinstance(refusal(packet(first, ID, no), version), ProtocolViolationError)


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("first", [0x82, 0xA2])
def test_a_subscribe_or_unsubscribe_without_a_packet_identifier_is_refused(
    version: int, first: int
) -> None:
    no = b"\0" if version == 5 else b""
    options = b"\0" if first == 0x82 else b""
    data = packet(first, b"\0\0", no, string("t"), options)
    assert isinstance(refusal(data, version), ProtocolViolationError)


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("first", [0x80, 0x81, 0x83, 0x8F, 0xA0, 0xA3, 0x60, 0x63, 0xC2, 0xE1])
def test_wrong_flags_of_a_packet_are_refused(version: int, first: int) -> None:
    with pytest.raises(MalformedPacketError):
        decode_client_packet(version, first, ID + b"\0")


BAD_FILTERS = ["", "a#", "#/a", "a/#/b", "##", "a+", "+a/b", "a/+b", "++", "a/b+/c", "/#a"]
BAD_SHARES = ["$share/", "$share/g", "$share/g/", "$share//t", "$share/+/t", "$share/#/t"]
BAD_SHARES += ["$share/a+/t", "$share/g/a#", "$share/g/+a"]


@pytest.mark.parametrize("topic_filter", BAD_FILTERS + BAD_SHARES)
@pytest.mark.parametrize("version", BOTH)
def test_a_filter_that_is_none_is_refused(version: int, topic_filter: str) -> None:
    no = b"\0" if version == 5 else b""
    text = string(topic_filter)
    for data in (packet(0x82, ID, no, text, b"\0"), packet(0xA2, ID, no, text)):
        assert isinstance(refusal(data, version), MalformedPacketError)
        assert isinstance(refusal(data, version), MalformedPacketError)


def test_the_options_of_a_subscription_in_3_1_1_are_a_quality_of_0_to_2() -> None:
    for options in range(256):
        data = packet(0x82, ID, string("t"), bytes([options]))
        if options <= 2:
            assert accepted(data) == Subscribe(7, (Subscription("t", options),))
        else:
            assert isinstance(refusal(data), MalformedPacketError)


def test_every_subscription_option_of_5_is_read_or_refused() -> None:
    for options in range(256):
        data = packet(0x82, ID, b"\0", string("t"), bytes([options]))
        qos, handling = options & 3, options >> 4 & 3
        if qos == 3 or options & 0xC0:
            assert isinstance(refusal(data, 5), MalformedPacketError)
        elif handling == 3:
            assert isinstance(refusal(data, 5), ProtocolViolationError)
        else:
            wanted = Subscription("t", qos, bool(options & 4), bool(options & 8), handling)
            assert accepted(data, 5) == Subscribe(7, (wanted,))


def test_no_local_on_a_shared_subscription_is_refused() -> None:
    shared = string("$share/group/t")
    refused = refusal(packet(0x82, ID, b"\0", shared, b"\x05"), 5)
    assert isinstance(refused, ProtocolViolationError)
    made = accepted(packet(0x82, ID, b"\0", shared, b"\x09"), 5)
    assert made == Subscribe(7, (Subscription("$share/group/t", 1, retain_as_published=True),))


@pytest.mark.parametrize("version", BOTH)
def test_a_filter_without_its_options_is_refused(version: int) -> None:
    no = b"\0" if version == 5 else b""
    data = packet(0x82, ID, no, string("t"), b"\0", string("u"))
    assert isinstance(refusal(data, version), MalformedPacketError)


def test_a_subscribe_has_one_subscription_identifier_that_is_not_0() -> None:
    for properties in (b"\2\x0b\0", b"\4\x0b\1\x0b\2"):
        data = packet(0x82, ID, properties, string("t"), b"\0")
        assert isinstance(refusal(data, 5), ProtocolViolationError)


# PINGREQ, DISCONNECT, AUTH


@pytest.mark.parametrize(("version", "first"), [(4, 0xC0), (4, 0xE0), (5, 0xC0)])
def test_a_packet_without_fields_has_no_body(version: int, first: int) -> None:
    assert isinstance(refusal(packet(first, b"\0"), version), MalformedPacketError)


def test_the_short_forms_of_disconnect_are_read() -> None:
    assert accepted(packet(0xE0), 5) == Disconnect()
    assert accepted(packet(0xE0, b"\4"), 5) == Disconnect(ReasonCode(4))
    assert accepted(packet(0xE0, b"\4\0"), 5) == Disconnect(ReasonCode(4))
    assert isinstance(refusal(packet(0xE0, b"\4\0\0"), 5), MalformedPacketError)


def test_only_the_reason_codes_of_their_side_are_accepted_in_a_disconnect() -> None:
    # 0x8C is in table 2-6, though not in the one of DISCONNECT.
    both = {0x00, *range(0x80, 0x84), 0x8C, 0x90, *range(0x93, 0x9A)}
    of_servers = {0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, *range(0x9A, 0xA3)}
    allowed = {CLIENT: both | {0x04}, SERVER: both | of_servers}
    for side, codes in allowed.items():
        for code in range(256):
            data = packet(0xE0, bytes([code]))
            if code in codes:
                assert accepted(data, 5, side) == Disconnect(ReasonCode(code))
            else:
                assert isinstance(refusal(data, 5, side), ProtocolViolationError)


def test_a_session_expiry_interval_in_a_disconnect_comes_from_clients_only() -> None:
    data = packet(0xE0, b"\0\5\x11\0\0\0\1")
    assert accepted(data, 5) == Disconnect(properties=Properties(session_expiry_interval=1))
    assert isinstance(refusal(data, 5, SERVER), ProtocolViolationError)


def test_an_auth_names_its_method_and_has_a_code_of_its_side() -> None:
    method = b"\x15" + string("m")
    properties = bytes([len(method)]) + method
    wanted = Properties(authentication_method="m")
    for side, codes in ((CLIENT, {0x18, 0x19}), (SERVER, {0x00, 0x18})):
        for code in range(256):
            data = packet(0xF0, bytes([code]), properties)
            if code in codes:
                assert accepted(data, 5, side) == Auth(ReasonCode(code), wanted)
            else:
                assert isinstance(refusal(data, 5, side), ProtocolViolationError)
    assert isinstance(refusal(packet(0xF0, b"\x18\0"), 5), ProtocolViolationError)
    assert isinstance(refusal(packet(0xF0, b"\x18"), 5), MalformedPacketError)
    assert isinstance(refusal(packet(0xF0), 5), ProtocolViolationError)
    assert accepted(packet(0xF0), 5, SERVER) == Auth()


def test_3_1_1_knows_no_auth_and_no_disconnect_of_a_server() -> None:
    assert isinstance(refusal(packet(0xF0), 4), MalformedPacketError)
    assert isinstance(refusal(packet(0xF0), 4, SERVER), MalformedPacketError)
    assert isinstance(refusal(packet(0xE0), 4, SERVER), ProtocolViolationError)


# Packets of servers, which tools and tests decode


def test_a_connack_that_contradicts_itself_is_refused() -> None:
    for version, no in ((4, b""), (5, b"\0")):
        assert accepted(packet(0x20, b"\1\0", no), version, SERVER) == ConnAck(True)
        for flags in (2, 0x80, 0xFF):
            data = packet(0x20, bytes([flags, 0]), no)
            assert isinstance(refusal(data, version, SERVER), MalformedPacketError)
    for version, body in ((4, b"\1\5"), (5, b"\1\x87\0")):
        refused = refusal(packet(0x20, body), version, SERVER)
        assert isinstance(refused, ProtocolViolationError)


def test_only_the_codes_of_a_connack_are_accepted_in_it() -> None:
    known = {
        *(0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C),
        *(0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F),
    }
    for code in range(256):
        five, four = packet(0x20, bytes([0, code, 0])), packet(0x20, bytes([0, code]))
        if code in known:
            assert accepted(five, 5, SERVER) == ConnAck(code=ReasonCode(code))
        else:
            assert isinstance(refusal(five, 5, SERVER), ProtocolViolationError)
        if code <= 5:
            made = accepted(four, 4, SERVER)
            assert isinstance(made, ConnAck)
            assert connack_311(made.code) == code
        else:
            assert isinstance(refusal(four, 4, SERVER), MalformedPacketError)


def test_codes_that_no_subscription_gets_are_refused_in_its_answer() -> None:
    for code in range(256):
        data = packet(0x90, ID, bytes([code]))
        if code in (0, 1, 2, 0x80):
            assert accepted(data, 4, SERVER) == SubAck(7, (code,))
        else:
            assert isinstance(refusal(data, 4, SERVER), ProtocolViolationError)
        data = packet(0x90, ID, b"\0", bytes([code]))
        if code in (0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2):
            assert accepted(data, 5, SERVER) == SubAck(7, (code,))
        else:
            assert isinstance(refusal(data, 5, SERVER), ProtocolViolationError)
        data = packet(0xB0, ID, b"\0", bytes([code]))
        if code in (0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91):
            assert accepted(data, 5, SERVER) == UnsubAck(7, (code,))
        else:
            assert isinstance(refusal(data, 5, SERVER), ProtocolViolationError)
    for data in (packet(0x90, ID), packet(0xB0, ID, b"\0")):
        assert isinstance(refusal(data, 4, SERVER), (ProtocolViolationError, MalformedPacketError))


def test_every_reason_has_a_return_code_of_3_1_1() -> None:
    assert {connack_311(code) for code in ReasonCode} == set(ConnectReturnCode)
    assert [code for code in ReasonCode if connack_311(code) == 0] == [ReasonCode.SUCCESS]
