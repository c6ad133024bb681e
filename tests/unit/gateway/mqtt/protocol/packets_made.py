"""Packets of both versions and both sides: Hypothesis strategies, and one rich example of each.

Strategies make exactly the packets that the standards allow, so every packet has to be the same
after encoding and decoding.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from fieldbrook.gateway.mqtt.protocol.decoding.decoder import (
    decode_client_packet,
    decode_server_packet,
)
from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.framing import next_frame
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    VERSION_311,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from fieldbrook.gateway.mqtt.protocol.properties import NO_PROPERTIES, Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode

VERSIONS = (VERSION_311, VERSION_5)
CLIENT, SERVER = "client", "server"

RECEIVED = (0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
RELEASED = (0x00, 0x92)
SUBSCRIBED = (0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)
UNSUBSCRIBED = (0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91)
CONNECTED = (
    *(0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C),
    *(0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F),
)
CLIENT_DISCONNECTS = (
    *(0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99),
)
SERVER_DISCONNECTS = (
    *(0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94),
    *(0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2),
)
CONNACKS_311 = (0x00, 0x84, 0x85, 0x88, 0x86, 0x87)


def decode(side: str, version: int, data: bytes) -> Packet:
    """Decode bytes that are exactly one packet."""
    frame = next_frame(data, 0, shortest=version == VERSION_5)
    assert frame is not None
    first, start, end = frame
    assert end == len(data)
    body = data[start:end]
    if side == SERVER:
        return decode_server_packet(version, first, body)
    return decode_client_packet(0 if first == 0x10 else version, first, body)


# Strategies

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
topic_names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=12
)
_levels = st.one_of(
    st.just("+"),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#/"), max_size=4),
)


def _joined(levels: list[str], below: bool) -> str:
    return "/".join([*levels, "#"] if below or levels == [""] else levels)


plain_filters = st.builds(_joined, st.lists(_levels, min_size=1, max_size=5), st.booleans()).filter(
    lambda made: not made.startswith("$share/")
)
shared_filters = st.builds("$share/{}/{}".format, st.sampled_from(["g", "group 1"]), plain_filters)
filters = st.one_of(plain_filters, shared_filters)
payloads = st.binary(max_size=40)
packet_ids = st.integers(1, 0xFFFF)
qualities = st.sampled_from([0, 1, 2])
u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFF_FFFF)
_positive_u16 = st.integers(1, 0xFFFF)
_pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
_identifiers = st.integers(1, 268_435_455)


def _codes(numbers: tuple[int, ...]) -> st.SearchStrategy[ReasonCode]:
    return st.sampled_from([ReasonCode(number) for number in numbers])


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Properties]:
    return st.builds(
        Properties,
        user_properties=_pairs,
        **{name: st.none() | each for name, each in fields.items()},
    )


_message = {
    "payload_format_indicator": st.sampled_from([0, 1]),
    "message_expiry_interval": u32,
    "content_type": texts,
    "response_topic": topic_names,
    "correlation_data": payloads,
}
_reason = _optional(reason_string=texts)


def _with_method(properties: Properties) -> bool:
    return properties.authentication_data is None or properties.authentication_method is not None


_connect_properties = _optional(
    session_expiry_interval=u32,
    receive_maximum=_positive_u16,
    maximum_packet_size=st.integers(1, 0xFFFF_FFFF),
    topic_alias_maximum=u16,
    request_response_information=st.booleans(),
    request_problem_information=st.booleans(),
    authentication_method=texts,
    authentication_data=payloads,
).filter(_with_method)
_connack_properties = _optional(
    session_expiry_interval=u32,
    receive_maximum=_positive_u16,
    maximum_qos=st.sampled_from([0, 1]),
    retain_available=st.booleans(),
    maximum_packet_size=st.integers(1, 0xFFFF_FFFF),
    assigned_client_identifier=texts,
    topic_alias_maximum=u16,
    reason_string=texts,
    wildcard_subscription_available=st.booleans(),
    subscription_identifier_available=st.booleans(),
    shared_subscription_available=st.booleans(),
    server_keep_alive=u16,
    response_information=texts,
    server_reference=texts,
    authentication_method=texts,
    authentication_data=payloads,
).filter(_with_method)
_auth_properties = st.builds(
    Properties,
    authentication_method=texts,
    authentication_data=st.none() | payloads,
    reason_string=st.none() | texts,
    user_properties=_pairs,
)


def _wills(five: bool) -> st.SearchStrategy[Will]:
    return st.builds(
        Will,
        topic=topic_names,
        payload=payloads,
        qos=qualities,
        retain=st.booleans(),
        properties=_optional(**_message, will_delay_interval=u32)
        if five
        else st.just(NO_PROPERTIES),
    )


def _is_allowed(packet: Connect) -> bool:
    if packet.version == VERSION_5:
        return True
    has_name = packet.username is not None or packet.password is None
    return has_name and (packet.clean_start or bool(packet.client_id))


def connects(version: int) -> st.SearchStrategy[Connect]:
    """CONNECT packets."""
    five = version == VERSION_5
    return st.builds(
        Connect,
        version=st.just(version),
        client_id=texts,
        clean_start=st.booleans(),
        keep_alive_s=u16,
        username=st.none() | texts,
        password=st.none() | payloads,
        will=st.none() | _wills(five),
        properties=_connect_properties if five else st.just(NO_PROPERTIES),
    ).filter(_is_allowed)


def _consistent(packet: Publish) -> Publish:
    """Return the packet without identifier and DUP if its QoS is 0."""
    if packet.qos:
        return packet
    return Publish(packet.topic, packet.payload, 0, packet.retain, properties=packet.properties)


def publishes(version: int, side: str) -> st.SearchStrategy[Publish]:
    """PUBLISH packets."""
    properties = st.just(NO_PROPERTIES)
    if version == VERSION_5:
        numbers = st.lists(_identifiers, max_size=3).map(tuple)
        properties = st.builds(
            Properties,
            topic_alias=st.none() | _positive_u16,
            user_properties=_pairs,
            subscription_identifiers=numbers if side == SERVER else st.just(()),
            **{name: st.none() | each for name, each in _message.items()},
        )
    made = st.builds(
        Publish,
        topic=topic_names,
        payload=payloads,
        qos=qualities,
        retain=st.booleans(),
        dup=st.booleans(),
        packet_id=packet_ids,
        properties=properties,
    )
    return made.map(_consistent)


def _acknowledgements(version: int) -> st.SearchStrategy[Packet]:
    if version == VERSION_311:
        return st.one_of(*(st.builds(k, packet_ids) for k in (PubAck, PubRec, PubRel, PubComp)))
    return st.one_of(
        *(st.builds(k, packet_ids, _codes(RECEIVED), _reason) for k in (PubAck, PubRec)),
        *(st.builds(k, packet_ids, _codes(RELEASED), _reason) for k in (PubRel, PubComp)),
    )


def _no_local_is_allowed(subscription: Subscription) -> bool:
    return not (subscription.no_local and subscription.filter.startswith("$share/"))


def _subscribes(version: int) -> st.SearchStrategy[Packet]:
    if version == VERSION_311:
        return st.builds(
            Subscribe,
            packet_ids,
            st.lists(st.builds(Subscription, filters, qualities), min_size=1, max_size=4).map(
                tuple
            ),
        )
    subscriptions = st.builds(
        Subscription, filters, qualities, st.booleans(), st.booleans(), qualities
    ).filter(_no_local_is_allowed)
    return st.builds(
        Subscribe,
        packet_ids,
        st.lists(subscriptions, min_size=1, max_size=4).map(tuple),
        st.builds(
            Properties,
            subscription_identifiers=st.just(()) | st.tuples(_identifiers),
            user_properties=_pairs,
        ),
    )


def _no_or(five: bool, properties: st.SearchStrategy[Properties]) -> st.SearchStrategy[Properties]:
    return properties if five else st.just(NO_PROPERTIES)


def client_packets(version: int) -> st.SearchStrategy[Packet]:
    """Every packet that a client may send."""
    five = version == VERSION_5
    kinds: list[st.SearchStrategy[Packet]] = [
        connects(version),
        publishes(version, CLIENT),
        _acknowledgements(version),
        _subscribes(version),
        st.builds(
            Unsubscribe,
            packet_ids,
            st.lists(filters, min_size=1, max_size=4).map(tuple),
            _no_or(five, _optional()),
        ),
        st.just(PingReq()),
    ]
    if five:
        ends = _optional(session_expiry_interval=u32, reason_string=texts, server_reference=texts)
        kinds.append(st.builds(Disconnect, _codes(CLIENT_DISCONNECTS), ends))
        kinds.append(st.builds(Auth, _codes((0x18, 0x19)), _auth_properties))
    else:
        kinds.append(st.just(Disconnect()))
    return st.one_of(kinds)


def _no_session_when_refused(packet: ConnAck) -> bool:
    return not (packet.session_present and packet.code)


def server_packets(version: int) -> st.SearchStrategy[Packet]:
    """Every packet that a server may send."""
    five = version == VERSION_5
    granted = st.lists(
        st.sampled_from(SUBSCRIBED if five else (0, 1, 2, 0x80)), min_size=1, max_size=4
    ).map(tuple)
    ended = st.lists(st.sampled_from(UNSUBSCRIBED), min_size=1, max_size=4).map(tuple)
    kinds: list[st.SearchStrategy[Packet]] = [
        st.builds(
            ConnAck,
            st.booleans(),
            _codes(CONNECTED if five else CONNACKS_311),
            _no_or(five, _connack_properties),
        ).filter(_no_session_when_refused),
        publishes(version, SERVER),
        _acknowledgements(version),
        st.builds(SubAck, packet_ids, granted, _no_or(five, _reason)),
        st.builds(UnsubAck, packet_ids, ended if five else st.just(()), _no_or(five, _reason)),
        st.just(PingResp()),
    ]
    if five:
        ends = _optional(reason_string=texts, server_reference=texts)
        kinds.append(st.builds(Disconnect, _codes(SERVER_DISCONNECTS), ends))
        kinds.append(st.builds(Auth, _codes((0x00, 0x18)), _auth_properties))
    return st.one_of(kinds)


# Examples: together they have every field and every property.

_USER = (("site", "höhe 3"), ("site", ""))
_WILL_5 = Will(
    "wills/a",
    b"gone",
    1,
    True,
    Properties(0, 60, "text/plain", "answers/a", b"\x01\x02", will_delay_interval=5),
)
_CONNECT_5 = Properties(
    session_expiry_interval=3600,
    receive_maximum=20,
    maximum_packet_size=65_536,
    topic_alias_maximum=10,
    request_response_information=True,
    request_problem_information=False,
    user_properties=_USER,
    authentication_method="SCRAM",
    authentication_data=b"\x00\x01",
)
_CONNACK_5 = Properties(
    session_expiry_interval=60,
    receive_maximum=64,
    maximum_qos=1,
    retain_available=True,
    maximum_packet_size=1 << 20,
    assigned_client_identifier="fb-1",
    topic_alias_maximum=16,
    reason_string="busy",
    user_properties=_USER,
    wildcard_subscription_available=True,
    subscription_identifier_available=True,
    shared_subscription_available=False,
    server_keep_alive=300,
    response_information="answers",
    server_reference="other:1883",
    authentication_method="SCRAM",
    authentication_data=b"\xff",
)
_MESSAGE_5 = Properties(1, 60, "text/plain", "answers/a", b"\x01\x02", user_properties=_USER)
_WHY = Properties(reason_string="no such project", user_properties=_USER)
_TWO = (Subscription("a/+/c", 1), Subscription("b/#", 2), Subscription("c", 0))
_TWO_5 = (
    Subscription("a/+/c", 1, no_local=True, retain_as_published=True, retain_handling=2),
    Subscription("$share/group/b/#", 2, retain_handling=1),
)

_FROM_CLIENTS_311: tuple[Packet, ...] = (
    Connect(4, "device-1"),
    Connect(4, "device-1", False, 60, "user", b"secret", Will("wills/a", b"gone", 2, True)),
    Publish("project/push", b'{"t":21.5}'),
    Publish("project/push", b'{"t":21.5}', 1, True, False, 7),
    Publish("project", b"", 2, False, True, 0xFFFF),
    PubAck(1),
    PubRec(2),
    PubRel(3),
    PubComp(0xFFFF),
    Subscribe(5, _TWO),
    Unsubscribe(6, ("a/+/c", "b/#")),
    PingReq(),
    Disconnect(),
)
_FROM_SERVERS_311: tuple[Packet, ...] = (
    ConnAck(True),
    ConnAck(False, ReasonCode.NOT_AUTHORIZED),
    Publish("project/device/1", b"on", 1, False, False, 9),
    SubAck(5, (1, 2, 0x80)),
    UnsubAck(6),
    PingResp(),
)
_FROM_CLIENTS_5: tuple[Packet, ...] = (
    Connect(5, "device-1"),
    Connect(5, "", False, 60, "user", b"secret", _WILL_5, _CONNECT_5),
    Publish("project/push", b"x"),
    Publish("project/push", b"x", 1, True, True, 7, _MESSAGE_5),
    Publish("", b"x", 2, False, False, 8, Properties(topic_alias=3)),
    *(k(1) for k in (PubAck, PubRec, PubRel, PubComp)),
    PubAck(1, ReasonCode.NOT_AUTHORIZED),
    PubAck(1, ReasonCode.NOT_AUTHORIZED, _WHY),
    PubRec(2, ReasonCode.QUOTA_EXCEEDED, _WHY),
    PubRel(3, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND, _WHY),
    PubComp(4, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND, _WHY),
    Subscribe(5, _TWO_5, Properties(subscription_identifiers=(300,), user_properties=_USER)),
    Unsubscribe(6, ("a/+/c", "$share/group/b/#"), Properties(user_properties=_USER)),
    PingReq(),
    Disconnect(),
    Disconnect(
        ReasonCode.DISCONNECT_WITH_WILL_MESSAGE,
        Properties(session_expiry_interval=0, reason_string="off", user_properties=_USER),
    ),
    Auth(
        ReasonCode.RE_AUTHENTICATE,
        Properties(authentication_method="SCRAM", authentication_data=b"\x01"),
    ),
)
_FROM_SERVERS_5: tuple[Packet, ...] = (
    ConnAck(True),
    ConnAck(False, ReasonCode.SERVER_BUSY, _CONNACK_5),
    Publish("a/b", b"x", 1, False, False, 9, Properties(subscription_identifiers=(1, 268_435_455))),
    SubAck(5, (0, 1, 2, 0x80, 0x8F), _WHY),
    UnsubAck(6, (0, 0x11), _WHY),
    PingResp(),
    Disconnect(ReasonCode.SESSION_TAKEN_OVER, Properties(server_reference="b:1", reason_string="")),
    Auth(),
    Auth(ReasonCode.CONTINUE_AUTHENTICATION, Properties(authentication_method="SCRAM")),
)

EXAMPLES: tuple[tuple[str, int, bytes], ...] = tuple(
    (side, version, encode(version, packet))
    for side, version, packets in (
        (CLIENT, VERSION_311, _FROM_CLIENTS_311),
        (SERVER, VERSION_311, _FROM_SERVERS_311),
        (CLIENT, VERSION_5, _FROM_CLIENTS_5),
        (SERVER, VERSION_5, _FROM_SERVERS_5),
    )
    for packet in packets
)
"""Who sends it, in which version, and the bytes of a valid packet."""
IDS = [
    f"{side}-{version}-{type(decode(side, version, data)).__name__}-{number}"
    for number, (side, version, data) in enumerate(EXAMPLES)
]
"""A name for each example."""
