"""Parser: turns the bytes that nats-server sends into values; no I/O.

Source: https://docs.nats.io/reference/reference-protocols/nats-protocol; ADR-4 of the NATS
architecture, for headers.
"""

from __future__ import annotations

from typing import NamedTuple

_LINE_BYTES = 64 << 10  # the longest line is the server's INFO, with the addresses of its cluster
_VERSION = b"NATS/1.0"


class Message(NamedTuple):
    """A message: its subject, its headers as they were sent, and its body."""

    subject: bytes
    head: bytes
    body: bytes

    @property
    def status(self) -> int:
        """The status in the first line of the headers, such as 503 for "no responders"; 0 without
        one."""
        words = self.head.split(b"\r\n", 1)[0].removeprefix(_VERSION).split()
        return int(words[0]) if words and words[0].isdigit() else 0

    def header(self, name: bytes) -> bytes:
        """Return the value of a header; empty when there is none."""
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.lower() == name.lower():
                return value.strip()
        return b""


class Line(NamedTuple):
    """Any other command, such as `PING`, `PONG`, `+OK`, `INFO {...}` and `-ERR '...'`."""

    text: bytes


class Parser:
    """Splits a stream of bytes into messages and lines.

    Args:
        limit_bytes: the largest message, with its headers. The server has the same limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Message | Line]:
        """Add bytes; return the messages and lines that are complete now.

        Raises:
            ValueError: the bytes are not valid NATS protocol, or a message is above the limit.
        """
        self._data += data
        found: list[Message | Line] = []
        at = 0
        while (next_at := self._one(at, found)) > at:
            at = next_at
        del self._data[:at]
        return found

    def _one(self, at: int, found: list[Message | Line]) -> int:
        """Append the message or line at an offset; return its end, or `at` if it is incomplete."""
        data = self._data
        end = data.find(b"\r\n", at, at + _LINE_BYTES)
        if end < 0:
            if len(data) - at >= _LINE_BYTES:
                raise ValueError("a line without an end")
            return at
        line = bytes(data[at:end])
        if not line.startswith((b"MSG ", b"HMSG ")):
            found.append(Line(line))
            return end + 2
        # HMSG <subject> <subscription> [reply] <bytes of headers> <bytes>; MSG has no headers
        words = line.split(b" ")
        total = int(words[-1])
        head = int(words[-2]) if words[0] == b"HMSG" else 0
        if not 0 <= head <= total <= self._limit:
            raise ValueError(f"a message of {total} bytes")
        begin = end + 2
        if len(data) < begin + total + 2:
            return at
        body = begin + head
        message = bytes(data[begin:body]), bytes(data[body : begin + total])
        found.append(Message(words[1], *message))
        return begin + total + 2
