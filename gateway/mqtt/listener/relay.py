"""Connections of browsers, which the HTTP gateways relay from WebSockets over a Unix socket.

A relayed connection begins with a preface (`gateway.mqtt.websocket.preface`). The bytes of the MQTT
connection follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fieldbrook.gateway.mqtt.connection.connection import Connection

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.listener.server import MqttServer


class RelayedConnection(Connection):
    """A connection to a client that an HTTP gateway relays."""

    __slots__ = ("_preface",)

    def __init__(self, server: MqttServer) -> None:
        super().__init__(server, "websocket")
        self._preface: bytes | None = b""

    def data_received(self, data: bytes) -> None:
        """Read the preface, then the packets."""
        if self._preface is None:
            super().data_received(data)
            return
        self._preface = start = self._preface + data
        if len(start) <= start[0]:
            return
        self._preface = None
        end = 1 + start[0]
        self._server.renamed(self, start[1:end].decode("utf-8", "replace"))
        if len(start) > end:
            super().data_received(start[end:])
