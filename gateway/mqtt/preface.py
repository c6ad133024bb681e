"""What a relayed connection begins with: the HTTP gateways relay WebSockets over a Unix socket.

The preface is one byte with the length of the client's address, and the address. The bytes of the
MQTT connection follow. The gateways import this, and not the connections of the MQTT server.
"""

from __future__ import annotations

WEBSOCKET_SOCKET = "mqtt"
"""The socket of relayed connections, in the run folder."""
_ADDRESS_LIMIT = 64


def preface(address: str) -> bytes:
    """The first bytes of a relayed connection."""
    encoded = address.encode()[:_ADDRESS_LIMIT]
    return bytes([len(encoded)]) + encoded
