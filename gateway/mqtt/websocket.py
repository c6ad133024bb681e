"""MQTT over WebSocket on the HTTP ports, for browsers: relays bytes to the process of the MQTT
gateway.

The WebSocket carries the bytes of an MQTT connection in binary messages. A packet may begin and end
anywhere in a message. Source: MQTT 5.0 and 3.1.1, section 6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tornado import web, websocket

from fieldbrook.gateway.listening.connections import TLS_DESCRIPTORS, IdleConnection
from fieldbrook.gateway.listening.listener import peer_of
from fieldbrook.gateway.memory_budget import Charge, Shared
from fieldbrook.gateway.request_target import is_origin
from fieldbrook.observability import metrics
from fieldbrook.system.process import descriptor_limit

PATH = "/mqtt"
WEBSOCKET_SOCKET = "mqtt"
"""The socket of the MQTT gateway for relayed connections, in the run folder."""
_ADDRESS_LIMIT = 64
_SUBPROTOCOLS = ("mqtt", "mqttv3.1")
_READ_BYTES = 64 << 10
_UNSENT_BYTES = 1 << 20
_UNSUPPORTED, _NOT_HERE = 1003, 1013
_LEAST = 8
# Half of the descriptors are for connections, and WebSockets may use half of these. The rest is for
# requests.
_SHARE = 4


def preface(address: str) -> bytes:
    """The first bytes of a relayed connection: the length of the client's address, and this."""
    encoded = address.encode()[:_ADDRESS_LIMIT]
    return bytes([len(encoded)]) + encoded


class Relays:
    """The WebSockets of one process.

    They are not counted as HTTP connections, because each one also needs a descriptor for its
    connection to the MQTT gateway. This is a `connections.Port` whose connections are not closed to
    make room for requests. They have a limit of their own. At this limit, a new WebSocket replaces
    an old one: of the client address with the most WebSockets, the one that has been silent for the
    longest time.
    """

    def __init__(self, *, tls: bool, descriptors: int | None = None) -> None:
        """Create it, without WebSockets. `descriptors` is the limit of the process, by default the
        real one."""
        soft = descriptor_limit() if descriptors is None else descriptors
        self._each = 1 + (TLS_DESCRIPTORS if tls else 1)
        self.limit = None if soft is None else max(_LEAST, soft // _SHARE // self._each)
        self._peers: dict[str, dict[object, Callable[[], None]]] = {}
        self._count = 0

    @property
    def connections(self) -> int:
        """See `connections.Port`: they have a limit of their own."""
        return 0

    @property
    def descriptors(self) -> int:
        """See `connections.Port`."""
        return self._each * self._count

    def idle(self) -> Iterable[IdleConnection]:
        """See `connections.Port`."""
        return ()

    def add(self, peer: str, relay: object, drop: Callable[[], None]) -> None:
        """Count a WebSocket that was opened; `drop` closes it at once."""
        if self.limit is not None and self._count >= self.limit:
            crowd = max(self._peers, key=lambda each: len(self._peers[each]))
            oldest, drop_oldest = next(iter(self._peers[crowd].items()))
            self.discard(crowd, oldest)
            metrics.add(metrics.HTTP_CONNECTIONS_EVICTED, 1)
            drop_oldest()
        self._peers.setdefault(peer, {})[relay] = drop
        self._count += 1

    def heard(self, peer: str, relay: object) -> None:
        """Note that a client has sent something."""
        held = self._peers.get(peer, {})
        if relay in held:
            held[relay] = held.pop(relay)

    def discard(self, peer: str, relay: object) -> None:
        """Stop counting a WebSocket, if it is still counted."""
        held = self._peers.get(peer, {})
        if held.pop(relay, None) is not None:
            self._count -= 1
            if not held:
                del self._peers[peer]


class MqttWebSocket(websocket.WebSocketHandler):
    """One connection of a browser. The MQTT gateway decides about its rights, by the login in
    CONNECT. It uses no cookies, so pages of any origin may connect."""

    def initialize(
        self, path: Path, message_limit_bytes: int, incomplete: Shared, relays: Relays
    ) -> None:
        """Tornado's constructor hook. `path` is the socket of the MQTT gateway. `incomplete` counts
        the bytes of messages that have arrived only in part, or that the gateway has not read.
        `relays` counts the WebSockets of the process."""
        self._path, self._relays = path, relays
        self._peer = peer_of(self.request.remote_ip or "")
        self._charge = Charge(incomplete, self._peer)
        self._held, self._closed = 0, False
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
        if not is_origin(self.request.headers.get("Origin", "")):
            self.set_status(403)
            self.finish("the Origin header is not a URL")
        else:
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
            stream.may_hold = self._may_hold
            self._relays.add(self._peer, self, stream.evict)
        self.set_nodelay(True)
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._path))
        except OSError:
            self.close(_NOT_HERE, "the MQTT gateway is not running")
            return
        self._writer = writer
        if self._closed:
            writer.close()
            return
        writer.write(preface(self.request.remote_ip or ""))
        self._relaying = asyncio.get_running_loop().create_task(self._relay(reader))

    async def on_message(self, message: str | bytes) -> None:
        """Forward bytes to the gateway; the next message is read when the gateway has read these
        bytes."""
        self._relays.heard(self._peer, self)
        if isinstance(message, str):
            self.close(_UNSUPPORTED, "MQTT needs binary messages")
        elif self._writer is not None:
            self._writer.write(message)
            with suppress(ConnectionError):
                await self._writer.drain()
        self._release()

    def _may_hold(self, size: int) -> bool:
        self._held += size
        return self._charge.set(self._held)

    def _release(self) -> None:
        self._held = 0
        self._charge.set(0)

    def on_close(self) -> None:
        """End the connection to the gateway."""
        self._closed = True
        self._relays.discard(self._peer, self)
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
