"""Decodes a packet of a client or of a server, by its first byte.

Every packet is checked as strictly as the standards demand, so that other modules need not check
the values again. Checks that depend on the state of a connection are not made here: packet
identifiers in use, the receive maximum, known topic aliases.

Source: MQTT 3.1.1 and MQTT 5.0, section 3.
"""

from __future__ import annotations

from typing import cast

from fieldbrook.gateway.mqtt.protocol import framing
from fieldbrook.gateway.mqtt.protocol.decoding.allowed_codes import (
    CLIENT_AUTH_CODES,
    CLIENT_DISCONNECT_CODES,
    RECEIVED_CODES,
    RELEASED_CODES,
    SERVER_AUTH_CODES,
    SERVER_DISCONNECT_CODES,
)
from fieldbrook.gateway.mqtt.protocol.decoding.checks import Decode
from fieldbrook.gateway.mqtt.protocol.decoding.connect import connack_5, connack_311, connect
from fieldbrook.gateway.mqtt.protocol.decoding.control import (
    auth,
    disconnect_5,
    disconnect_311,
    pingreq,
    pingresp,
)
from fieldbrook.gateway.mqtt.protocol.decoding.publish import (
    acknowledgement_5,
    acknowledgement_311,
    publish_5,
    publish_5_of_client,
    publish_311,
)
from fieldbrook.gateway.mqtt.protocol.decoding.subscribe import (
    suback_5,
    suback_311,
    subscribe_5,
    subscribe_311,
    unsuback_5,
    unsuback_311,
    unsubscribe_5,
    unsubscribe_311,
)
from fieldbrook.gateway.mqtt.protocol.errors import MalformedPacketError, ProtocolViolationError
from fieldbrook.gateway.mqtt.protocol.fields import SHORT
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    VERSION_311,
    ClientPacket,
    Packet,
    PubAck,
    PubComp,
    PubRec,
    PubRel,
    ServerPacket,
)
from fieldbrook.gateway.mqtt.protocol.properties import Place


def decode_client_packet(version: int, first_byte: int, body: bytes) -> ClientPacket:
    """Decode a packet of a client.

    Args:
        version: 4 for 3.1.1 and 3.1, 5 for 5.0; 0 before the CONNECT, which contains the version.
        first_byte: as `framing.next_frame` found it.
        body: all bytes after the fixed header.

    Raises:
        ProtocolError: the standard does not allow the packet here. No bytes raise another error.
    """
    try:
        return cast(ClientPacket, _CLIENT[version][first_byte](first_byte, body))
    except IndexError:  # a field ends after the end of the body
        raise MalformedPacketError(SHORT) from None


def decode_server_packet(version: int, first_byte: int, body: bytes) -> ServerPacket:
    """Decode a packet of a server, for tests and tools. `version` is 4 or 5.

    Raises:
        ProtocolError: as for `decode_client_packet`.
    """
    try:
        return cast(ServerPacket, _SERVER[version][first_byte](first_byte, body))
    except IndexError:
        raise MalformedPacketError(SHORT) from None


def _unknown(_first: int, _body: bytes) -> Packet:
    raise MalformedPacketError("the first byte of a packet has an unknown type or wrong flags")


def _not_from_this_side(_first: int, _body: bytes) -> Packet:
    raise ProtocolViolationError("this side never sends packets of this type")


def _before_connect(_first: int, _body: bytes) -> Packet:
    raise ProtocolViolationError("the first packet has to be a CONNECT")  # MQTT-3.1.0-1


def _second_connect(_first: int, _body: bytes) -> Packet:
    raise ProtocolViolationError("a second CONNECT")  # MQTT-3.1.0-2


_SERVERS_ONLY = (framing.CONNACK, framing.SUBACK, framing.UNSUBACK, framing.PINGRESP)
_CLIENTS_ONLY = (framing.CONNECT, framing.SUBSCRIBE, framing.UNSUBSCRIBE, framing.PINGREQ)

_ACKNOWLEDGEMENTS_311: dict[int, Decode] = {
    framing.PUBACK: acknowledgement_311(PubAck),
    framing.PUBREC: acknowledgement_311(PubRec),
    framing.PUBREL: acknowledgement_311(PubRel),
    framing.PUBCOMP: acknowledgement_311(PubComp),
}
_ACKNOWLEDGEMENTS_5: dict[int, Decode] = {
    framing.PUBACK: acknowledgement_5(PubAck, Place.PUBACK, RECEIVED_CODES),
    framing.PUBREC: acknowledgement_5(PubRec, Place.PUBREC, RECEIVED_CODES),
    framing.PUBREL: acknowledgement_5(PubRel, Place.PUBREL, RELEASED_CODES),
    framing.PUBCOMP: acknowledgement_5(PubComp, Place.PUBCOMP, RELEASED_CODES),
}


def _by_first_byte(decoders: dict[int, Decode], others: dict[int, Decode]) -> tuple[Decode, ...]:
    return tuple((others | decoders).get(first, _unknown) for first in range(256))


_LEGAL_FIRST = (
    *framing.PUBLISHES,
    *_SERVERS_ONLY,
    *_CLIENTS_ONLY,
    *_ACKNOWLEDGEMENTS_311,
    framing.DISCONNECT,
    framing.AUTH,
)
_CLIENT = {
    0: _by_first_byte({framing.CONNECT: connect}, dict.fromkeys(_LEGAL_FIRST, _before_connect)),
    VERSION_311: _by_first_byte(
        {
            framing.CONNECT: _second_connect,
            **dict.fromkeys(framing.PUBLISHES, publish_311),
            **_ACKNOWLEDGEMENTS_311,
            framing.SUBSCRIBE: subscribe_311,
            framing.UNSUBSCRIBE: unsubscribe_311,
            framing.PINGREQ: pingreq,
            framing.DISCONNECT: disconnect_311,
        },
        dict.fromkeys(_SERVERS_ONLY, _not_from_this_side),
    ),
    VERSION_5: _by_first_byte(
        {
            framing.CONNECT: _second_connect,
            **dict.fromkeys(framing.PUBLISHES, publish_5_of_client),
            **_ACKNOWLEDGEMENTS_5,
            framing.SUBSCRIBE: subscribe_5,
            framing.UNSUBSCRIBE: unsubscribe_5,
            framing.PINGREQ: pingreq,
            framing.DISCONNECT: disconnect_5(CLIENT_DISCONNECT_CODES, of_server=False),
            framing.AUTH: auth(CLIENT_AUTH_CODES),
        },
        dict.fromkeys(_SERVERS_ONLY, _not_from_this_side),
    ),
}
_SERVER = {
    VERSION_311: _by_first_byte(
        {
            framing.CONNACK: connack_311,
            **dict.fromkeys(framing.PUBLISHES, publish_311),
            **_ACKNOWLEDGEMENTS_311,
            framing.SUBACK: suback_311,
            framing.UNSUBACK: unsuback_311,
            framing.PINGRESP: pingresp,
        },
        dict.fromkeys((*_CLIENTS_ONLY, framing.DISCONNECT), _not_from_this_side),
    ),
    VERSION_5: _by_first_byte(
        {
            framing.CONNACK: connack_5,
            **dict.fromkeys(framing.PUBLISHES, publish_5),
            **_ACKNOWLEDGEMENTS_5,
            framing.SUBACK: suback_5,
            framing.UNSUBACK: unsuback_5,
            framing.PINGRESP: pingresp,
            framing.DISCONNECT: disconnect_5(SERVER_DISCONNECT_CODES, of_server=True),
            framing.AUTH: auth(SERVER_AUTH_CODES),
        },
        dict.fromkeys(_CLIENTS_ONLY, _not_from_this_side),
    ),
}
