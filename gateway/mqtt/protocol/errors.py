"""Errors of packets.

These errors never leave the gateway. The class of an error decides the reason code of the CONNACK
or DISCONNECT that ends the connection. The text is short and fixed, and contains nothing that the
peer has sent. So it may be sent as a reason string.
"""

from __future__ import annotations

from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode


class ProtocolError(Exception):
    """Base class: the peer has sent a packet that the standard or a limit forbids; its connection
    has to end.

    Attributes:
        code: the reason code for the peer; the class sets it, or the code that raises the error.
        text: what is wrong, in words.
        version: for an error in a CONNECT, the protocol version (4 or 5) in which the CONNACK
            is to be written; 0 when none should be sent, and for other packets.
    """

    code: ReasonCode = ReasonCode.UNSPECIFIED_ERROR

    def __init__(self, text: str, *, code: ReasonCode | None = None, version: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.version = version
        if code is not None:
            self.code = code


class MalformedPacketError(ProtocolError):
    """The bytes cannot be read as the standard describes the packet."""

    code = ReasonCode.MALFORMED_PACKET


class ProtocolViolationError(ProtocolError):
    """The packet can be read, but the standard forbids it in this form or from this side."""

    code = ReasonCode.PROTOCOL_ERROR


class UnsupportedVersionError(ProtocolError):
    """A CONNECT of another protocol version."""

    code = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION


class ClientIdentifierError(ProtocolError):
    """A client without an identifier wants a persistent session, over 3.1.1."""

    code = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


class TopicFilterError(ProtocolError):
    """A well-formed topic filter that is longer or deeper than the node allows."""

    code = ReasonCode.TOPIC_FILTER_INVALID


class TopicNameError(ProtocolError):
    """A well-formed topic name that is longer or deeper than the node allows."""

    code = ReasonCode.TOPIC_NAME_INVALID


class TooManyItemsError(ProtocolError):
    """A packet has more filters or user properties than the node reads in one packet."""

    code = ReasonCode.QUOTA_EXCEEDED


class PacketTooLargeError(ProtocolError):
    """The packet is larger than the limit; raised before its body has arrived."""

    code = ReasonCode.PACKET_TOO_LARGE
