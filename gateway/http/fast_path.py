"""The fast path of the event port: it parses plain event POSTs; Tornado serves all other requests.

Tornado's parser costs 65 to 150 us per request, which is most of an event's budget. Every
connection therefore starts here. A request that has exactly the form of a device's event POST
(one `Content-Length`, no header that changes the body's meaning) is parsed from the bytes. At the
first request of any other form, the TCP connection and the bytes read so far are handed over to
Tornado, permanently. This parser may be strict, because Tornado decides all doubtful cases.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol, cast

from fieldbrook.gateway.events.handling import Rest
from fieldbrook.gateway.events.message import SINGLE
from fieldbrook.gateway.events.request import Meta
from fieldbrook.gateway.http.request_head import (
    HEAD_LIMIT,
    Fields,
    Head,
    has_bare_line_feed,
    read_fields,
    read_head,
)
from fieldbrook.gateway.http.tls.bridge import bridge
from fieldbrook.gateway.listening.connections import IdleConnection
from fieldbrook.gateway.listening.proxies import Proxies
from fieldbrook.gateway.listening.read_turns import ReadTurns
from fieldbrook.gateway.listening.reads import limit_reads
from fieldbrook.gateway.memory_budget import Charge, Shared, request_budget
from fieldbrook.gateway.replies import EVENT_META, REPLAYED_HEADER, Answer, EventReply

PIPELINED_LIMIT = 16
_SLICE_S = 0.05  # for all connections in one iteration of the event loop
# A refused event is answered without a worker. So 120 senders of refused events, for example, could
# keep the event loop busy, and an accepted event would wait for all of them at each of its steps.
_REFUSED_SLICE_S = 0.004
_FEWEST_REFUSED = 8  # connections that continue in each iteration, even beyond the slice
REFUSALS_AT_ONCE = 4  # refused events of one connection in one turn
# Batches that may be partly submitted at a time. Each keeps its body and its answers in memory,
# even when its client has disconnected. Further batches wait in the buffers of their connections,
# which the memory budget counts. Clients whose last events were accepted have a limit of their own.
_BATCHES_AT_ONCE = 16
IDLE_LIMIT_S = 120.0
REQUEST_LIMIT_S = 30.0
_HEADS_CACHED = 4_096
_FIELDS_CACHED = 4_096
_RESPONSES_CACHED = 1_024
_CACHED_HEAD_LIMIT = 1_024

_START = b"POST /"
_TOO_MANY_REQUESTS = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_REQUEST_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_META = EVENT_META.encode()


class EventReceiver(Protocol):
    """The part of `events.handling.EventService` that the fast path uses."""

    def accept(self, project_name: str, body: bytes, answer: Answer, meta: Meta) -> Rest | None:
        """Submit the body of one request; see `EventService.accept`."""


def render(reply: EventReply) -> bytes:
    """Render the answer to an event as an HTTP/1.1 response."""
    if reply.repeats:
        # Answers with the same body differ only in the event's id.
        parts = _response_parts.get(reply.body)
        if parts is None:
            if len(_response_parts) >= _RESPONSES_CACHED:
                _response_parts.clear()
            parts = _response_parts[reply.body] = _split_at_id(reply)
    else:
        parts = _split_at_id(reply)
    if reply.replayed:
        return parts[0] + header_value(reply.event_id) + _REPLAYED + parts[1]
    return parts[0] + header_value(reply.event_id) + parts[1]


_response_parts: dict[bytes, tuple[bytes, bytes]] = {}
_REPLAYED = f"\r\n{REPLAYED_HEADER}: true".encode()


def _split_at_id(reply: EventReply) -> tuple[bytes, bytes]:
    reason = HTTPStatus(reply.status).phrase.encode()
    retry_after_s = None if reply.error is None else reply.error.retry_after_s
    retry = b"" if retry_after_s is None else b"Retry-After: %d\r\n" % retry_after_s
    return (
        b"HTTP/1.1 %d %b\r\nContent-Type: application/json; charset=utf-8\r\n"
        b"X-Meta: %b\r\nX-Event-Id: " % (reply.status, reason, _META),
        b"\r\n%bContent-Length: %d\r\n\r\n%b" % (retry, len(reply.body), reply.body),
    )


_UNSAFE = re.compile(r"[^\x21-\x7e]")


def header_value(text: str) -> bytes:
    """Encode untrusted text as a header value; unsafe characters become `_`."""
    if not (text.isascii() and text.isprintable()):
        text = _UNSAFE.sub("_", text)
    return text.encode()


class Turns(NamedTuple):
    """The turns that the fast paths of a process share.

    `accepted` is for connections whose last events were all accepted, `others` is for all other
    connections, including new ones.
    """

    accepted: ReadTurns
    others: ReadTurns


def make_turns() -> Turns:
    """Make the turns of a process."""
    return Turns(ReadTurns(_SLICE_S), ReadTurns(_REFUSED_SLICE_S, fewest=_FEWEST_REFUSED))


class FastPath:
    """The fast-path connections of one port and the caches that they share."""

    def __init__(
        self,
        events: EventReceiver,
        body_limit_bytes: int,
        hand_over: Callable[[socket.socket, tuple[Any, ...], bytes], None],
        *,
        memory_budget: Shared | None = None,
        turns: Turns | None = None,
        proxies: Proxies | None = None,
    ) -> None:
        """Create the fast path of one port, without connections.

        Args:
            events: the service that receives the events.
            body_limit_bytes: the largest body of one event.
            hand_over: gives a connection to Tornado; called with the socket, the peer address
                and the bytes read so far.
            memory_budget: the memory budget for partially received requests.
            turns: the turns that the fast paths of a process share.
            proxies: connections of these reverse proxies use the memory budget, but not the share
                of a client.
        """
        self.turns = turns or make_turns()
        self.memory_budget = memory_budget or request_budget(body_limit_bytes)
        self.proxies = proxies or Proxies()
        self.events = events
        self.body_limit_bytes = body_limit_bytes
        self.hand_over = hand_over
        self.connections: set[EventConnection] = set()
        self.batches = {True: 0, False: 0}  # partly submitted batches, by `_is_accepted`
        self._heads: dict[bytes, Head] = {}
        self._fields: dict[bytes, Fields] = {}

    def connection(self) -> EventConnection:
        """Create the protocol of a new connection."""
        return EventConnection(self)

    def idle(self) -> Iterator[IdleConnection]:
        """The idle connections: those without a pending answer."""
        return (
            IdleConnection(each.active_at(), each.evict)
            for each in self.connections
            if not each.awaits_answer
        )

    def head(self, head: bytes) -> Head | None:
        """Do the same as `read_head`, with a cache."""
        found = self._heads.get(head)
        if found is None:
            found = read_head(head, self._cached_fields)
            if found is not None and not found.changing and len(head) <= _CACHED_HEAD_LIMIT:
                if len(self._heads) >= _HEADS_CACHED:
                    self._heads.clear()
                self._heads[head] = found
        return found

    def _cached_fields(self, fields: bytes) -> Fields | None:
        """Do the same as `read_fields`, with a cache."""
        found = self._fields.get(fields)
        if found is None:
            found = read_fields(fields)
            # Idempotency keys and traces differ in each request, so such fields would only fill the
            # cache.
            common = found is not None and found.idempotency_key is None and not found.traceparent
            if found is not None and common and len(fields) <= _CACHED_HEAD_LIMIT:
                if len(self._fields) >= _FIELDS_CACHED:
                    self._fields.clear()
                self._fields[fields] = found
        return found

    def close_expired(self, now: float) -> None:
        """Close connections that have been idle, or whose request has been incomplete, for too
        long."""
        for connection in list(self.connections):
            connection.close_if_expired(now)


class EventConnection(asyncio.Protocol):
    """One client connection: events in, answers out in the order of the requests."""

    __slots__ = (
        "_active_at",
        "_answers",
        "_batch",
        "_batch_was_accepted",
        "_buffer",
        "_charge",
        "_eof_received",
        "_fast_path",
        "_handing_over",
        "_is_accepted",
        "_is_queued",
        "_is_tls",
        "_missing",
        "_rest",
        "_transport",
        "_writing_paused",
    )

    def __init__(self, table: FastPath) -> None:
        self._fast_path = table
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        # While a body is incomplete: the bytes received after `_buffer`, and how many are missing.
        self._rest = bytearray()
        self._missing = 0
        self._charge = Charge(table.memory_budget, "")
        self._answers: list[list[bytes | None]] = []
        self._batch: Rest | None = None  # the part of a batch that is not submitted yet
        self._batch_was_accepted = False  # the value of `_is_accepted` before the batch
        self._handing_over = False
        self._eof_received = False
        self._writing_paused = False
        self._is_accepted = False  # whether all events of the last read were accepted
        self._is_queued = False
        self._is_tls = False
        self._active_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection."""
        self._transport = cast(asyncio.Transport, transport)
        limit_reads(transport)
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        self._active_at = asyncio.get_running_loop().time()
        peer = transport.get_extra_info("peername")  # None if the client has disconnected already
        if peer:
            holder = self._fast_path.proxies.holder(peer[0])
            self._charge = Charge(self._fast_path.memory_budget, holder)
        self._fast_path.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; events that the client sent are still handled."""
        self._transport = None
        self._answers = []
        self._fast_path.connections.discard(self)
        self._reserve(0)

    def data_received(self, data: bytes) -> None:
        """Buffer bytes from the client and handle the requests that are complete."""
        if not self._buffer:
            self._active_at = asyncio.get_running_loop().time()
        if self._missing:
            self._rest += data
            self._missing -= len(data)
            if self._missing > 0:
                self._reserve(len(self._buffer) + len(self._rest))
                return
            data, self._rest, self._missing = bytes(self._rest), bytearray(), 0
        self._buffer = self._buffer + data if self._buffer else data
        self._handle_requests()

    def eof_received(self) -> bool:
        """Keep the connection open for the pending answers after the client's end of file.

        Over TLS this is not possible, because an end of file ends the connection.
        """
        self._eof_received = True
        return bool(self._answers) and not self._is_tls

    def pause_writing(self) -> None:
        """Stop reading requests while the client does not read its answers."""
        self._writing_paused = True
        self._active_at = asyncio.get_running_loop().time()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read requests again, now that the client has read its answers."""
        loop = asyncio.get_running_loop()
        self._writing_paused = False
        self._active_at = loop.time()
        # The hand-over waits for the next iteration of the loop: the transport calls this method in
        # the middle of a write.
        if not self._handing_over:
            self._resume_reading()
        elif not self._answers:
            loop.call_soon(self._hand_over)

    @property
    def awaits_answer(self) -> bool:
        """Whether the client still waits for an answer."""
        return bool(self._answers) or self._is_queued

    def active_at(self) -> float:
        """The start of the client's last request, in seconds of the loop's clock."""
        return self._active_at

    def evict(self) -> None:
        """Close the connection at once, to make room for others."""
        if self._transport is not None:
            self._transport.abort()

    def _reserve(self, size: int) -> None:
        """Charge an incomplete request to the memory budget.

        When the budget or the client's share of it is used up, the client gets 429 and the
        connection is closed, unless earlier requests still wait for their answers.
        """
        if not self._charge.set(size) and self._transport is not None and not self._answers:
            self._buffer, self._rest, self._missing = b"", bytearray(), 0
            self._transport.write(_TOO_MANY_REQUESTS)
            self._transport.close()

    def close_if_expired(self, now: float) -> None:
        """Close the connection if it has been quiet for too long.

        The limit is `REQUEST_LIMIT_S` for an incomplete request and `IDLE_LIMIT_S` for an idle
        connection or a client that does not read its answers.
        """
        limit = REQUEST_LIMIT_S if self._buffer and not self._writing_paused else IDLE_LIMIT_S
        if self._transport is None or self._is_queued or now - self._active_at <= limit:
            return
        if self._transport.get_write_buffer_size():
            self._transport.abort()  # `close` would wait for the client to read
        elif not self._answers:
            if self._buffer:
                self._transport.write(_REQUEST_TIMEOUT)
            self._transport.close()

    def _handle_requests(self, *, has_turn: bool = False) -> None:
        """Handle the complete requests of the buffer; with `has_turn`, do not wait for a turn."""
        buffer, table, transport = self._buffer, self._fast_path, self._transport
        turns = self._turns
        start, end, refused = 0, len(buffer), 0
        while start < end and transport is not None and not (self._handing_over or self._batch):
            if transport.is_closing():  # the client is gone; asyncio logs further writes
                break
            if self._writing_paused or len(self._answers) >= PIPELINED_LIMIT:
                transport.pause_reading()
                break
            if refused >= REFUSALS_AT_ONCE or not (has_turn or turns.may_go_on()):
                self._wait_for_turn()
                break
            if not buffer.startswith(_START[: end - start], start):
                self._buffer = buffer[start:]
                self._begin_hand_over()
                return
            # A head above the limit is not parsed, even when it has arrived completely.
            head_end = buffer.find(b"\r\n\r\n", start, start + HEAD_LIMIT)
            if head_end < 0:
                if end - start >= HEAD_LIMIT or has_bare_line_feed(buffer[start:]):
                    self._buffer = buffer[start:]
                    self._begin_hand_over()
                    return
                break
            head_end += 4
            head = table.head(buffer[start:head_end])
            if head is None or head.body_length > table.body_limit_bytes:
                self._buffer = buffer[start:]
                self._begin_hand_over()
                return
            body_end = head_end + head.body_length
            if body_end > end:
                self._missing = body_end - end
                break
            accepted = self._is_accepted
            if table.batches[accepted] >= _BATCHES_AT_ONCE and not (
                head.meta.event_type is not None or buffer.startswith(SINGLE, head_end)
            ):
                self._wait_for_turn()
                break
            start = body_end
            slot: list[bytes | None] = [None]
            self._answers.append(slot)
            body = buffer[body_end - head.body_length : body_end]
            answer = partial(self._answer, slot)
            self._batch = table.events.accept(head.project_name, body, answer, head.meta)
            refused += slot[0] is not None
            self._is_accepted = not (refused or self._batch)
            if self._batch is not None:
                table.batches[accepted] += 1
                self._batch_was_accepted = accepted
                self._wait_for_turn()
                break
        if start:
            buffer = buffer[start:]
            if buffer:
                # The rest is the beginning of another request, so its time limit starts now.
                self._active_at = asyncio.get_running_loop().time()
        self._buffer = buffer
        self._reserve(len(buffer))

    def _answer(self, slot: list[bytes | None], reply: EventReply) -> None:
        transport = self._transport
        if transport is None:
            return
        answers = self._answers
        slot[0] = render(reply)
        ready = []
        while answers and answers[0][0] is not None:
            ready.append(answers.pop(0)[0])
        if not ready:
            return
        transport.write(b"".join(ready) if len(ready) > 1 else ready[0])  # type: ignore[arg-type]
        if self._handing_over:
            if not answers:
                self._hand_over()
        elif self._eof_received:
            if not answers:
                transport.close()
        else:
            self._resume_reading()

    @property
    def _turns(self) -> ReadTurns:
        turns = self._fast_path.turns
        return turns.accepted if self._is_accepted else turns.others

    def _wait_for_turn(self) -> None:
        if self._transport is not None and not self._is_queued:
            self._is_queued = True
            self._transport.pause_reading()
            self._turns.call(self._go_on)

    def _go_on(self) -> None:
        self._is_queued = False
        if self._batch is not None:
            # A batch is submitted completely, even if its client has disconnected.
            if not self._batch():
                self._is_queued = True
                self._turns.call(self._go_on)
                return
            self._batch = None
            self._fast_path.batches[self._batch_was_accepted] -= 1
            # A batch of refused events is answered already.
            self._is_accepted = bool(self._answers) and self._answers[-1][0] is None
        if not self._handing_over and self._read_again():
            self._handle_requests(has_turn=True)

    def _resume_reading(self) -> None:
        """Resume reading when fewer than `PIPELINED_LIMIT` answers are pending."""
        if not self._is_queued and self._read_again():
            asyncio.get_running_loop().call_soon(self._handle_requests)

    def _read_again(self) -> bool:
        transport = self._transport
        if transport is None or transport.is_reading():
            return False
        if self._writing_paused or len(self._answers) >= PIPELINED_LIMIT:
            return False
        # The node did not read meanwhile, so the client did not cause the delay.
        self._active_at = asyncio.get_running_loop().time()
        transport.resume_reading()
        return True

    def _begin_hand_over(self) -> None:
        """Hand the connection over to Tornado after the pending answers."""
        assert self._transport is not None
        self._handing_over = True
        self._transport.pause_reading()
        if not self._answers:
            self._hand_over()

    def _hand_over(self) -> None:
        transport = self._transport
        if transport is None:
            return
        if transport.get_write_buffer_size():
            # Answers are still being sent: `resume_writing` is called after the last one.
            transport.set_write_buffer_limits(0)
            return
        self._transport = None
        self._fast_path.connections.discard(self)
        address = transport.get_extra_info("peername")
        buffer, self._buffer = self._buffer, b""
        self._reserve(0)
        if self._is_tls:
            transport.set_write_buffer_limits()
            self._fast_path.hand_over(bridge(transport), address, buffer)
            return
        # `detach` takes the descriptor out of asyncio's socket: closing that socket then does not
        # close the connection. `dup` would need a second descriptor for each connection.
        own: socket.socket = transport.get_extra_info("socket")._sock
        transport.abort()
        taken = socket.socket(fileno=own.detach())
        taken.setblocking(False)
        self._fast_path.hand_over(taken, address, buffer)
