"""A connection to nats-server in the server's own protocol.

It supports only the commands for reading a stream, and only the loopback without TLS. Callbacks get
messages directly from the read buffer. A general client passes each message through a task, a queue
and parsed headers, which was a third of a message's cost in the gateway.

Source: https://docs.nats.io/reference/reference-protocols/nats-protocol; ADR-1 and ADR-4 of the
NATS architecture, for answers of JetStream and for headers.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from fieldbrook import __version__

NOT_FOUND, TIMEOUT, CONFLICT = 404, 408, 409
_NO_RESPONDERS = b" 503"
_STATUS = re.compile(rb"NATS/1\.0 (\d+) ?([^\r\n]*)")
# The next message would exceed the requested number of bytes, or too many messages are not
# acknowledged.
_NO_MORE = (b"maxbytes", b"maxackpending")
_VERSION_BYTES = len(b"NATS/1.0")
# The bytes that are parsed in one iteration of the loop: some 150 messages.
_READ_BYTES = 64 << 10
_LINE_LIMIT = 8 << 10
_UNANSWERED_PINGS = 2
_MSG, _HMSG = b"M"[0], b"H"[0]

Take = Callable[[bytes, bytes, bytes, bytes], None]
"""Receives a message: its subject, its reply subject (may be empty), headers, body."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a server, and the login that it accepts."""

    url: str
    user: str
    password: str


class Stored(NamedTuple):
    """A message of a stream; an empty message to `reply` acknowledges it."""

    subject: bytes
    reply: bytes
    body: bytes


class RequestError(ConnectionError):
    """The server refused a request; `code` is as in HTTP, 0 when the server sent none."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class NatsConnection(asyncio.BufferedProtocol):
    """One connection. Every method is called in its loop.

    Args:
        on_lost: called once with the reason when the connection ends, except by `close`.
        on_writable: called when the write buffer has room again.
    """

    def __init__(self, on_lost: Callable[[str], None], on_writable: Callable[[], None]) -> None:
        self._on_lost = on_lost
        self._on_writable = on_writable
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(_READ_BYTES)
        self._filled = 0
        self._wanted = 0  # the size of the incomplete message at the start of the buffer
        self._takers: dict[bytes, Take] = {}
        self._info: asyncio.Future[bytes] = self._loop.create_future()
        self._pongs: collections.deque[asyncio.Future[None]] = collections.deque()
        self._asked: set[asyncio.Future[bytes]] = set()
        self._unanswered = 0
        self._error = ""
        self._inbox = f"_INBOX.{os.urandom(12).hex()}"
        self._numbers = itertools.count(1)
        self.writable = True
        """Whether the write buffer has room, i.e. whether the server reads fast enough."""

    @property
    def connected(self) -> bool:
        """Whether the connection is open."""
        return self._transport is not None

    async def open(self, endpoint: Endpoint, name: str, limit_s: float) -> None:
        """Connect and log in.

        Raises:
            OSError: the connection failed, or the server refuses it.
            TimeoutError: the server did not answer in time.
        """
        host, _, port = endpoint.url.removeprefix("nats://").rpartition(":")
        login = {
            "user": endpoint.user,
            "pass": endpoint.password,
            "name": name,
            "lang": "python-fieldbrook",
            "version": __version__,
            "protocol": 1,
            "headers": True,
            "no_responders": True,
            "verbose": False,
            "pedantic": False,
        }
        async with asyncio.timeout(limit_s):
            await self._loop.create_connection(lambda: self, host.strip("[]"), int(port))
            await self._info
            self.write(b"CONNECT " + json.dumps(login).encode() + b"\r\n")
            await self.flush(limit_s)

    def close(self) -> None:
        """Close the connection after the written bytes; no callback is called any more."""
        self._takers.clear()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        self._give_up("closed")

    def write(self, data: bytes) -> None:
        """Send commands of the protocol; they are dropped when the connection is lost."""
        if self._transport is not None:
            self._transport.write(data)

    def new_inbox(self) -> str:
        """Create a unique subject for replies."""
        return f"{self._inbox}.{next(self._numbers)}"

    def subscribe(self, subject: str, take: Take) -> int:
        """Subscribe to a subject; return the number of the subscription."""
        number = next(self._numbers)
        self._takers[b"%d" % number] = take
        self.write(f"SUB {subject} {number}\r\n".encode())
        return number

    async def flush(self, limit_s: float) -> None:
        """Wait until the server has read everything written so far.

        Raises:
            OSError: the connection is lost.
            TimeoutError: the server did not answer in time.
        """
        async with asyncio.timeout(limit_s):
            await self._ping()

    def is_alive(self) -> bool:
        """Send a ping, and return whether fewer than 2 pings are unanswered. Call it
        periodically."""
        if self._transport is None or self._unanswered >= _UNANSWERED_PINGS:
            return False
        self._unanswered += 1
        self._ping()
        return True

    def _ping(self) -> asyncio.Future[None]:
        pong: asyncio.Future[None] = self._loop.create_future()
        self._pongs.append(pong)
        self.write(b"PING\r\n")
        if self._transport is None:
            self._give_up(self._error or "closed")
        return pong

    async def ask(self, subject: str, question: object, limit_s: float) -> dict[str, Any]:
        """Send a request of the server's API, as JSON, and return the answer.

        Raises:
            RequestError: the server refuses the request, or nothing answers on this subject.
            OSError: the connection is lost.
            TimeoutError: the server did not answer in time.
        """
        answered: asyncio.Future[bytes] = self._loop.create_future()

        def take(_subject: bytes, _reply: bytes, head: bytes, body: bytes) -> None:
            if not answered.done():
                nobody = head[_VERSION_BYTES:].startswith(_NO_RESPONDERS)
                answered.set_result(b"" if nobody else body)

        inbox = self.new_inbox()
        number = self.subscribe(inbox, take)
        self._asked.add(answered)
        body = b"" if question is None else json.dumps(question).encode()
        self.write(f"PUB {subject} {inbox} {len(body)}\r\n".encode() + body + b"\r\n")
        if self._transport is None:
            self._give_up(self._error or "closed")
        try:
            async with asyncio.timeout(limit_s):
                data = await answered
        finally:
            self._asked.discard(answered)
            self._takers.pop(b"%d" % number, None)
            self.write(b"UNSUB %d\r\n" % number)
        if not data:
            raise RequestError(503, f"nothing answers on {subject}")
        answer = cast("dict[str, Any]", json.loads(data))
        if "error" in answer:
            error = answer["error"]
            raise RequestError(int(error.get("code", 0)), str(error.get("description", "")))
        return answer

    async def pull(
        self, subject: str, question: dict[str, Any], count: int, limit_s: float
    ) -> list[Stored]:
        """Ask a consumer for at most `count` messages.

        Args:
            subject: the consumer's subject for such requests.
            question: the request without its number of messages. With `no_wait` the server answers
                at once.
            count: the number of messages.
            limit_s: the time limit of the whole answer.

        Returns:
            The messages, in order; fewer than `count` when the server has no more now.

        Raises:
            RequestError: the server refuses the request; messages that it has sent are delivered
                again later.
            OSError: the connection is lost.
            TimeoutError: the server did not answer in time.
        """
        ended: asyncio.Future[bytes] = self._loop.create_future()
        messages: list[Stored] = []

        def take(subject: bytes, reply: bytes, head: bytes, body: bytes) -> None:
            if reply:
                messages.append(Stored(subject, reply, body))
            if not ended.done() and (not reply or len(messages) == count):
                ended.set_result(b"" if reply else head)

        inbox = self.new_inbox()
        number = self.subscribe(inbox, take)
        self._asked.add(ended)
        body = json.dumps({**question, "batch": count}).encode()
        self.write(f"PUB {subject} {inbox} {len(body)}\r\n".encode() + body + b"\r\n")
        if self._transport is None:
            self._give_up(self._error or "closed")
        try:
            async with asyncio.timeout(limit_s):
                head = await ended
        finally:
            self._asked.discard(ended)
            self._takers.pop(b"%d" % number, None)
            self.write(b"UNSUB %d\r\n" % number)
        _check_end(head)
        return messages

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the open socket."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending requests and report the loss."""
        reason = self._error or (str(exc) if exc else "") or "closed by the server"
        closed_here = self._transport is None
        self._transport = None
        self._give_up(reason)
        if not closed_here:
            self._on_lost(reason)

    def pause_writing(self) -> None:
        """Note that the write buffer is full."""
        self.writable = False

    def resume_writing(self) -> None:
        """Note that the write buffer has room again."""
        self.writable = True
        self._on_writable()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the part of the buffer for the next bytes."""
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the buffer once the message at its start is complete."""
        self._filled += nbytes
        if self._filled < self._wanted:
            return
        data = bytes(memoryview(self._buffer)[: self._filled])
        try:
            used = self._parse(data)
        except (ValueError, IndexError, UnicodeDecodeError) as error:
            self._error = f"the server sent invalid NATS protocol: {error}"
            if self._transport is not None:
                self._transport.abort()
            return
        size = max(_READ_BYTES, self._wanted)
        if len(self._buffer) != size:
            self._buffer = bytearray(size)
        self._filled = len(data) - used
        self._buffer[: self._filled] = data[used:]

    def _parse(self, data: bytes) -> int:
        """Handle the complete messages and commands; return the number of bytes used."""
        at, size = 0, len(data)
        self._wanted = 0
        while True:
            end = data.find(b"\r\n", at)
            if end < 0:
                if size - at > _LINE_LIMIT:
                    raise ValueError("a line without an end")
                return at
            kind = data[at]
            if kind not in (_HMSG, _MSG):
                self._obey(data[at:end])
                at = end + 2
                continue
            # HMSG <subject> <number> [reply subject] <bytes of headers> <bytes>; MSG has no headers
            words = data[at:end].split(b" ")
            head = end + 2
            ends = head + int(words[-1])
            if ends + 2 > size:
                self._wanted = ends + 2 - at
                return at
            body = head + int(words[-2]) if kind == _HMSG else head
            take = self._takers.get(words[2])
            if take is not None:
                reply = words[3] if len(words) == (6 if kind == _HMSG else 5) else b""
                take(words[1], reply, data[head:body], data[body:ends])
            at = ends + 2

    def _obey(self, line: bytes) -> None:
        if line == b"PING":
            self.write(b"PONG\r\n")
        elif line == b"PONG":
            self._unanswered = 0
            if self._pongs:
                pong = self._pongs.popleft()
                if not pong.done():
                    pong.set_result(None)
        elif line.startswith(b"INFO "):
            if not self._info.done():
                self._info.set_result(line)
        elif line.startswith(b"-ERR"):
            self._error = line[4:].decode("utf-8", "replace").strip(" '")
        elif line and line != b"+OK":
            raise ValueError(repr(line[:64]))

    def _give_up(self, reason: str) -> None:
        """Let all requests that wait for the server fail."""
        waiting: list[asyncio.Future[Any]] = [self._info, *self._pongs, *self._asked]
        self._pongs.clear()
        self._asked.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionError(reason))
                future.exception()  # marks it as retrieved: a future without a waiter logs nothing


def _check_end(head: bytes) -> None:
    """Check the status with which the server ended its answer to `pull`; b"" without one.

    Raises:
        RequestError: the status is not one that means "no more messages now".
    """
    found = _STATUS.match(head)
    if found is None:
        if head:
            raise RequestError(0, "an answer without a status")
        return
    code, text = int(found[1]), found[2]
    if code in (NOT_FOUND, TIMEOUT) or (
        code == CONFLICT and any(word in text.lower() for word in _NO_MORE)
    ):
        return
    raise RequestError(code, text.decode("utf-8", "replace"))
