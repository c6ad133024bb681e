"""PINGREQ, PINGRESP, DISCONNECT and AUTH.

Source: MQTT 3.1.1, sections 3.12 to 3.14, and MQTT 5.0, sections 3.12 to 3.15.
"""

from __future__ import annotations

from fieldbrook.gateway.mqtt.protocol.decoding.checks import Decode, check_code, require_end
from fieldbrook.gateway.mqtt.protocol.errors import ProtocolViolationError
from fieldbrook.gateway.mqtt.protocol.packets import Auth, Disconnect, PingReq, PingResp
from fieldbrook.gateway.mqtt.protocol.properties import Place, read_properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode

_PINGREQ, _PINGRESP, _DISCONNECT = PingReq(), PingResp(), Disconnect()


def pingreq(_first: int, body: bytes) -> PingReq:
    """Decode a PINGREQ."""
    require_end(body, 0)
    return _PINGREQ


def pingresp(_first: int, body: bytes) -> PingResp:
    """Decode a PINGRESP."""
    require_end(body, 0)
    return _PINGRESP


def disconnect_311(_first: int, body: bytes) -> Disconnect:
    """Decode a DISCONNECT of 3.1.1."""
    require_end(body, 0)
    return _DISCONNECT


def disconnect_5(codes: dict[int, ReasonCode], *, of_server: bool) -> Decode:
    """Return the decoder of a DISCONNECT of 5.0 from this side."""

    def decode(_first: int, body: bytes) -> Disconnect:
        if not body:
            return _DISCONNECT
        code = check_code(body[0], codes)
        if len(body) == 1:
            return Disconnect(code)
        properties, at = read_properties(body, 1, Place.DISCONNECT)
        require_end(body, at)
        if of_server and properties.session_expiry_interval is not None:
            # MQTT-3.14.2-2
            raise ProtocolViolationError("a server sent a session expiry interval")
        return Disconnect(code, properties)

    return decode


def auth(codes: dict[int, ReasonCode]) -> Decode:
    """Return the decoder of an AUTH from this side."""

    def decode(_first: int, body: bytes) -> Auth:
        if not body:
            return Auth(check_code(ReasonCode.SUCCESS, codes))
        code = check_code(body[0], codes)
        properties, at = read_properties(body, 1, Place.AUTH)
        require_end(body, at)
        if properties.authentication_method is None:
            raise ProtocolViolationError("an AUTH without an authentication method")
        return Auth(code, properties)

    return decode
