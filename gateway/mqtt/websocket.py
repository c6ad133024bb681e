"""MQTT over WebSocket on the HTTP ports, for browsers: relayed to the process of the MQTT gateway.

The WebSocket carries the bytes of an MQTT connection in binary messages, whose borders mean
nothing. Source: MQTT 5.0 and 3.1.1, section 6.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

from tornado import web, websocket

from fieldbrook.gateway.listening.listener import peer_of
from fieldbrook.gateway.mqtt.listener.relay import preface
from fieldbrook.gateway.mqtt.sessions.limits import Shared

PATH = "/mqtt"
_SUBPROTOCOLS = ("mqtt", "mqttv3.1")
_READ_BYTES = 64 << 10
_UNSENT_BYTES = 1 << 20
_UNSUPPORTED, _NOT_HERE = 1003, 1013


class MqttWebSocket(websocket.WebSocketHandler):
    """One connection of a browser. Who may do what is decided by the MQTT gateway, by the login in
    CONNECT; there are no cookies, so pages of any origin may connect."""

    def initialize(self, path: Path, message_limit_bytes: int, incomplete: Shared) -> None:
        """Tornado's constructor hook: `path` is the socket of the MQTT gateway, and `incomplete`
        counts messages that have not arrived as a whole, or that it has not taken."""
        self._path, self._incomplete = path, incomplete
        self._peer, self._held = "", 0
        self._message_limit_bytes = message_limit_bytes
        self._writer: asyncio.StreamWriter | None = None
        self._relaying: asyncio.Task[None] | None = None

    @property
    def max_message_size(self) -> int:
        """See `websocket.WebSocketHandler`; a longer message closes the connection."""
        return self._message_limit_bytes

    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open the WebSocket of a client that speaks MQTT over it."""
        offered = self.request.headers.get("Sec-WebSocket-Protocol", "")
        if self.request.headers.get("Upgrade", "").lower() != "websocket":
            raise web.HTTPError(426, "MQTT clients connect to this path by WebSocket")
        if not any(word.strip() in _SUBPROTOCOLS for word in offered.split(",")):
            raise web.HTTPError(400, "the WebSocket must offer the subprotocol mqtt")
        await super().get(*args, **kwargs)

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """See `websocket.WebSocketHandler`."""
        return next((each for each in _SUBPROTOCOLS if each in subprotocols), None)

    def check_origin(self, origin: str) -> bool:
        """See `websocket.WebSocketHandler`."""
        return True

    async def open(self, *args: str, **kwargs: str) -> None:
        """Connect to the MQTT gateway."""
        stream: Any = self.ws_connection and getattr(self.ws_connection, "stream", None)
        if hasattr(stream, "limit_unsent"):
            stream.limit_unsent(_UNSENT_BYTES)
            stream.upgraded = True
            self._peer = peer_of(self.request.remote_ip or "")
            stream.may_hold = self._may_hold
        self.set_nodelay(True)
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._path))
        except OSError:
            self.close(_NOT_HERE, "the MQTT gateway is not running")
            return
        self._writer = writer
        writer.write(preface(self.request.remote_ip or ""))
        self._relaying = asyncio.get_running_loop().create_task(self._relay(reader))

    async def on_message(self, message: str | bytes) -> None:
        """Pass bytes on; the next message is read when the gateway has taken these."""
        if isinstance(message, str):
            self.close(_UNSUPPORTED, "MQTT is binary")
        elif self._writer is not None:
            self._writer.write(message)
            with suppress(ConnectionError):
                await self._writer.drain()
        self._release()

    def _may_hold(self, size: int) -> bool:
        self._held += size
        self._incomplete.add(self._peer, size)
        return not self._incomplete.is_exceeded(self._peer)

    def _release(self) -> None:
        self._incomplete.add(self._peer, -self._held)
        self._held = 0

    def on_close(self) -> None:
        """End the connection to the gateway."""
        self._release()
        if self._relaying is not None:
            self._relaying.cancel()
        if self._writer is not None:
            self._writer.close()

    async def _relay(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError, websocket.WebSocketClosedError):
            while data := await reader.read(_READ_BYTES):
                await self.write_message(data, binary=True)
        self.close()
