"""A client of `/stream` over a WebSocket."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from fieldbrook.gateway.management.prefixes import PREFIXES
from tests.support.tools import LIMIT_S

_NARROW_BYTES = 4_096


class StreamClient:
    """One stream; `token` is sent first unless it is "".

    A `slow` client buffers next to nothing beyond the messages that a test takes.
    """

    def __init__(
        self,
        port: int,
        token: str,
        *,
        origin: str | None = None,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        slow: bool = False,
    ) -> None:
        scheme = "ws" if tls is None else "wss"
        address = f"{scheme}://{host}:{port}{PREFIXES[0]}/stream"
        self._kept: list[Any] = []
        self._open = ExitStack()
        more: dict[str, Any] = {"ssl": tls, "origin": origin}
        if slow:
            more |= {"sock": _narrow(host, port), "max_queue": 1, "ping_interval": None}
        opening: Any = connect(address, proxy=None, compression=None, **more)
        self.socket = self._open.enter_context(opening)
        if token:
            self.send(token=token)

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def follow(self, number: int, topic: str, **more: Any) -> None:
        self.send(follow={"id": number, "topic": topic, **more})

    def next(self, limit_s: float = LIMIT_S) -> Any:
        """Return the next message that is not a ping."""
        if self._kept:
            return self._kept.pop(0)
        while True:
            found = json.loads(self.socket.recv(limit_s))
            if found != {"ping": True}:
                return found

    def until(self, number: int, fits: Callable[[Any], Any]) -> list[Any]:
        """Return all messages of a topic up to one that fits; messages of other topics are kept for
        later calls."""
        limit = time.monotonic() + LIMIT_S
        found, others = list[Any](), list[Any]()
        while time.monotonic() < limit:
            message = self.next()
            if message.get("id") != number:
                others.append(message)
                continue
            found.append(message)
            if fits(message):
                self._kept = [*others, *self._kept]
                return found
        raise AssertionError(f"no message fits: {found[-3:]}")

    def end(self) -> tuple[list[Any], int]:
        """Return all messages up to the end of the stream, and its close code."""
        found = []
        try:
            while True:
                found.append(json.loads(self.socket.recv(LIMIT_S)))
        except ConnectionClosed as closed:
            assert closed.rcvd is not None
            self.close()
            return found, closed.rcvd.code

    def close(self) -> None:
        self._open.close()


def _narrow(host: str, port: int) -> socket.socket:
    """Return a connection for which the kernel buffers only few unread bytes."""
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NARROW_BYTES)
    opened.settimeout(LIMIT_S)
    opened.connect((host, port))
    opened.settimeout(None)
    return opened
