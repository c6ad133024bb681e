"""The packets of MQTT 3.1.1 and 5.0 as values.

A field that only one version has is at its default in packets of the other version. Durations are
in seconds.

Source: MQTT 3.1.1 and MQTT 5.0, section 3.
"""

from __future__ import annotations

from msgspec import Struct

from fieldbrook.gateway.mqtt.protocol.properties import NO_PROPERTIES, Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode

VERSION_311 = 4
VERSION_5 = 5


class Will(Struct, frozen=True):
    """The message that the server publishes when the connection ends without a DISCONNECT."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


class Connect(Struct, frozen=True):
    """A client introduces itself. `clean_start` is 3.1.1's clean session."""

    version: int
    client_id: str
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES

    def __repr__(self) -> str:
        """Name the client. A password must not get into a log."""
        return f"Connect(version={self.version}, client_id={self.client_id!r})"


class ConnAck(Struct, frozen=True):
    """The answer to a CONNECT. In 3.1.1 `code` is sent as one of six return codes."""

    session_present: bool = False
    code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Publish(Struct, frozen=True):
    """A message. `packet_id` is 0 for QoS 0; `topic` may be empty if a topic alias is set."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES


class PubAck(Struct, frozen=True):
    """The answer to a PUBLISH of QoS 1."""

    packet_id: int
    code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class PubRec(Struct, frozen=True):
    """The answer to a PUBLISH of QoS 2: it was received."""

    packet_id: int
    code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class PubRel(Struct, frozen=True):
    """The sender of a QoS 2 message releases its packet identifier."""

    packet_id: int
    code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class PubComp(Struct, frozen=True):
    """The end of a QoS 2 delivery."""

    packet_id: int
    code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Subscription(Struct, frozen=True):
    """One filter of a SUBSCRIBE. 3.1.1 has no options except the QoS.

    `retain_handling`: 0 sends retained messages, 1 only if the subscription is new, 2 never.
    """

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(Struct, frozen=True):
    """A client subscribes to one or more filters."""

    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NO_PROPERTIES


class SubAck(Struct, frozen=True):
    """The answer to a SUBSCRIBE: for each filter the granted QoS, or a reason code from 0x80."""

    packet_id: int
    codes: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


class Unsubscribe(Struct, frozen=True):
    """A client ends subscriptions."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


class UnsubAck(Struct, frozen=True):
    """The answer to an UNSUBSCRIBE: a reason code for each filter. 3.1.1 has no codes."""

    packet_id: int
    codes: tuple[int, ...] = ()
    properties: Properties = NO_PROPERTIES


class PingReq(Struct, frozen=True):
    """A client shows that it is still connected."""


class PingResp(Struct, frozen=True):
    """The answer to a PINGREQ."""


class Disconnect(Struct, frozen=True):
    """The last packet of a connection. In 3.1.1 only clients send it, and without a code."""

    code: ReasonCode = ReasonCode.NORMAL_DISCONNECTION
    properties: Properties = NO_PROPERTIES


class Auth(Struct, frozen=True):
    """A step of an extended authentication; MQTT 5 only."""

    code: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


ClientPacket = (
    Connect
    | Publish
    | PubAck
    | PubRec
    | PubRel
    | PubComp
    | Subscribe
    | Unsubscribe
    | PingReq
    | Disconnect
    | Auth
)
"""The packets that a client may send."""

ServerPacket = (
    ConnAck
    | Publish
    | PubAck
    | PubRec
    | PubRel
    | PubComp
    | SubAck
    | UnsubAck
    | PingResp
    | Disconnect
    | Auth
)
"""The packets that a server may send."""

Packet = ClientPacket | ServerPacket
