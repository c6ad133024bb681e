"""A blocking connection to nats-server: requests, and many messages that are answered in any order.

A worker commits in a thread without an event loop, so this client blocks. A general client with its
own event loop took ten times the processor time for each record (decision 44).
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from fieldbrook import __version__
from fieldbrook.core.errors import EngineUnreachableError
from fieldbrook.storage.replication.parser import Message, Parser

MESSAGE_BYTES = 8 << 20
"""The largest message, with its headers; `max_payload` of the server."""
_READ_BYTES = 256 << 10
_CONNECT_S = 1.0


class Endpoint(NamedTuple):
    """The address at which a server listens, and the login that it accepts."""

    host: str
    port: int
    user: str
    password: str


class Outgoing(NamedTuple):
    """A message to send: its subject, its headers (empty, or whole lines), and its body."""

    subject: str
    headers: bytes
    body: bytes


class Connection:
    """One connection, for one thread at a time. It connects when it is used.

    A failure closes the connection, and the next call connects again. The outcome of messages in
    flight is unknown then.

    Args:
        endpoint: returns the address of the server, whose port changes with each start. It may
            raise EngineUnreachableError.
        name: shown by the server's monitoring.
        now: the clock, monotonic seconds.
    """

    def __init__(
        self, endpoint: Callable[[], Endpoint], name: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._endpoint, self._name, self._now = endpoint, name, now
        self._socket: socket.socket | None = None
        self._parser = Parser(MESSAGE_BYTES)
        self._messages: list[Message] = []
        self._pongs = 0
        self._inbox = ""
        self._number = 1

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return self._socket is not None

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # ---------------------------------------------------------------- requests

    def request(self, subject: str, question: object, limit_s: float) -> dict[str, Any]:
        """Send a question as JSON, and return the answer.

        Args:
            subject: a subject that answers requests.
            question: None for an empty question.
            limit_s: how long to wait.

        Raises:
            EngineUnreachableError: there is no answer in time.
        """
        body = b"" if question is None else json.dumps(question).encode()
        for message in self.ask_many([Outgoing(subject, b"", body)], limit_s):
            if message is not None and not message.status:
                try:
                    answer: dict[str, Any] = json.loads(message.body)
                except ValueError:
                    raise EngineUnreachableError(
                        reason=f"the answer on {subject} is damaged"
                    ) from None
                return answer
        raise EngineUnreachableError(reason=f"nothing answers on {subject}")

    def ask_many(self, messages: Sequence[Outgoing], limit_s: float) -> list[Message | None]:
        """Send messages, and return the answer to each; None if it did not arrive in time.

        Raises:
            EngineUnreachableError: the connection cannot be opened. If the connection fails later,
                missing answers are None.
        """
        deadline = self._now() + limit_s
        numbers = self.send(messages, limit_s)
        answers: dict[int, Message] = {}
        try:
            while len(answers) < len(messages) and self._now() < deadline:
                found = self.receive(deadline - self._now())
                # The other messages are answers to earlier calls.
                answers.update(pair for pair in found if pair[0] in numbers)
        except EngineUnreachableError:
            pass  # the caller sees which answers are missing
        return [answers.get(number) for number in numbers]

    def send(self, messages: Sequence[Outgoing], limit_s: float) -> range:
        """Send messages without waiting for their answers; returns a number for each.

        Raises:
            EngineUnreachableError: the connection cannot be opened, or has failed. The server may
                have got some of them.
        """
        deadline = self._now() + limit_s
        self._require_open(deadline)
        numbers = range(self._number, self._number + len(messages))
        self._number = numbers.stop
        parts: list[bytes] = []
        for number, (subject, headers, body) in zip(numbers, messages, strict=True):
            reply = f"{self._inbox}{number}"
            if headers:
                sizes = f"{len(headers)} {len(headers) + len(body)}"
                parts += (f"HPUB {subject} {reply} {sizes}\r\n".encode(), headers, body, b"\r\n")
            else:
                parts += (f"PUB {subject} {reply} {len(body)}\r\n".encode(), body, b"\r\n")
        self._send(b"".join(parts), deadline)
        return numbers

    def receive(self, limit_s: float, wake: int | None = None) -> list[tuple[int, Message]]:
        """Wait for answers, and return them with the numbers of their messages.

        Args:
            limit_s: how long to wait.
            wake: a descriptor; the wait ends when it becomes readable.

        Raises:
            EngineUnreachableError: the connection is closed, or has failed.
        """
        if not self._messages:
            self._receive(self._now() + limit_s, wake)
        messages, self._messages = self._messages, []
        return [(int(message.subject[len(self._inbox) :]), message) for message in messages]

    def stream(self, subject: str, question: object, limit_s: float) -> Iterator[Message]:
        """Send a question, and iterate over its answers until one has a status.

        Args:
            subject: a subject that answers requests.
            question: sent as JSON.
            limit_s: how long to wait for each answer.

        Raises:
            EngineUnreachableError: the next answer does not come in time.
        """
        (wanted,) = self.send([Outgoing(subject, b"", json.dumps(question).encode())], limit_s)
        deadline = self._now() + limit_s
        while self._now() < deadline:
            for number, message in self.receive(deadline - self._now()):
                if number != wanted:
                    continue
                if message.status:
                    return
                deadline = self._now() + limit_s
                yield message
        raise EngineUnreachableError(reason=f"{subject}: no answer in time")

    # ---------------------------------------------------------------- the socket

    def _require_open(self, deadline: float) -> None:
        if self._socket is not None:
            return
        endpoint, name = self._endpoint(), self._name
        self._parser, self._messages = Parser(MESSAGE_BYTES), []
        self._inbox = f"_INBOX.{os.urandom(12).hex()}."
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
        try:
            wait_s = max(0.01, min(_CONNECT_S, deadline - self._now()))
            self._socket = socket.create_connection((endpoint.host, endpoint.port), wait_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setblocking(False)
        except OSError as error:
            where = f"{endpoint.host}:{endpoint.port}"
            raise EngineUnreachableError(reason=f"{where}: {error}") from error
        pongs = self._pongs
        connect = b"CONNECT " + json.dumps(login).encode()
        self._send(connect + f"\r\nSUB {self._inbox}* 1\r\nPING\r\n".encode(), deadline)
        while self._pongs == pongs:
            if self._now() >= deadline:
                self._fail("no answer to the login", None)
            self._receive(deadline)

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            if self._socket is None:
                raise EngineUnreachableError(reason="the connection to nats-server is closed")
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                self._wait_to_write(deadline)
            except OSError as error:
                self._fail(str(error), error)

    def _receive(self, deadline: float, wake: int | None = None) -> None:
        """Read once; wait until bytes can be read, or the time is over."""
        if self._socket is None:
            raise EngineUnreachableError(reason="the connection to nats-server is closed")
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if wake is not None:
            poll.register(wake, select.POLLIN)
        ready = dict(poll.poll(max(0.0, deadline - self._now()) * 1000))
        if self._socket.fileno() not in ready:
            return
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            self._fail(str(error), error)
        if not data:
            self._fail("closed by the server", None)
        self._take(data, deadline)

    def _take(self, data: bytes, deadline: float) -> None:
        try:
            found = self._parser.feed(data)
        except ValueError as error:
            self._fail(f"the server sent invalid NATS protocol: {error}", error)
        for item in found:
            if isinstance(item, Message):
                self._messages.append(item)
            elif item.text == b"PING":
                self._send(b"PONG\r\n", deadline)
            elif item.text == b"PONG":
                self._pongs += 1
            elif item.text.startswith(b"-ERR"):
                self._fail(item.text[4:].decode("utf-8", "replace").strip(" '"), None)

    def _wait_to_write(self, deadline: float) -> None:
        """Wait until the socket can be written, and read meanwhile.

        Otherwise both sides could wait for each other to read.
        """
        assert self._socket is not None
        left_s = deadline - self._now()
        if left_s <= 0:
            self._fail("the server does not read in time", None)
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLOUT)
        ready = poll.poll(left_s * 1000)
        if ready and ready[0][1] & select.POLLIN:
            self._receive(deadline)

    def _fail(self, reason: str, cause: Exception | None) -> NoReturn:
        self.close()
        raise EngineUnreachableError(reason=f"nats-server: {reason}") from cause
