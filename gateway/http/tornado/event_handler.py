"""Tornado's handler of event requests that the fast path does not parse.

The same `EventService` answers the requests of both.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tornado import httputil, web

from fieldbrook.core.errors import PayloadTooLargeError
from fieldbrook.gateway import replies
from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.events.request import KEY_HEADER, Meta, parse_content_length, read_meta
from fieldbrook.gateway.http.fast_path import header_value
from fieldbrook.gateway.http.tornado.request_stream import RequestStream
from fieldbrook.gateway.listening.listener import peer_of
from fieldbrook.gateway.memory_budget import BUDGET_EXCEEDED, Charge, Shared
from fieldbrook.gateway.replies import EventReply
from fieldbrook.observability import spans

_DRAIN_FACTOR = 4


@web.stream_request_body
class EventHandler(web.RequestHandler):
    """Reads one event request within the limits, submits it and sends its answer."""

    def initialize(
        self, events: EventService, body_limit_bytes: int, memory_budget: Shared
    ) -> None:
        """Tornado's constructor hook."""
        self._events = events
        self._charge = Charge(memory_budget, peer_of(self.request.remote_ip or ""))
        self._limit = body_limit_bytes
        self._body = bytearray()
        self._size = 0

    def prepare(self) -> None:
        """Refuse a body whose stated length is far over the limit before reading it."""
        self._make_room(parse_content_length(self.request.headers.get("Content-Length", "")))

    def data_received(self, chunk: bytes) -> None:
        """Collect the body up to the limit, regardless of `Content-Length`."""
        self._size += len(chunk)
        self._make_room(self._size)
        if self._size > self._limit or self._finished:
            return
        self._body += chunk
        if not self._charge.set(self._size):
            self.set_header("Connection", "close")
            self._reply(self._events.refuse_unread(BUDGET_EXCEEDED, self.path_args[0]))

    def on_finish(self) -> None:
        """Called by Tornado when the answer has been sent."""
        self._let_go()

    def on_connection_close(self) -> None:
        """Called by Tornado when the client has disconnected."""
        super().on_connection_close()  # fails the reader that waits for the rest of the body
        self._let_go()

    def _let_go(self) -> None:
        self._body = bytearray()
        self._charge.set(0)

    def _make_room(self, size: int) -> None:
        # A client that is still sending does not read its answer. Therefore a body that exceeds the
        # limit by not too much is read to its end and dropped, so that the client receives the
        # refusal.
        if size > self._limit * _DRAIN_FACTOR and not self._finished:
            self.set_header("Connection", "close")
            self._reply(self._too_large(size, self.path_args[0]))

    async def post(self, project_name: str) -> None:
        """Submit the event and wait for its answer."""
        if self._size > self._limit:
            self._reply(self._too_large(self._size, project_name))
            return
        answer: asyncio.Future[EventReply] = asyncio.get_running_loop().create_future()
        meta = meta_of(self.request)
        rest = self._events.accept(project_name, bytes(self._body), answer.set_result, meta)
        while rest is not None and not rest():
            await self._turn()
        self._reply(await answer)

    async def _turn(self) -> None:
        connection: Any = self.request.connection
        if isinstance(connection.stream, RequestStream):
            await connection.stream.turn()
        else:
            await asyncio.sleep(0)

    def options(self, project_name: str) -> None:
        """Answer a CORS preflight; a request without `Origin` gets no CORS headers."""
        if "Origin" not in self.request.headers:
            return
        for name, value in replies.cors_headers(preflight=True).items():
            self.set_header(name, value)
        self.set_status(204)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer requests that are no event: another method, or one that Tornado cannot parse."""
        if status_code == 405:
            self.set_header("Allow", "POST, OPTIONS")
        self.set_header("Content-Type", replies.TEXT_TYPE)
        self.finish(f"{self._reason}\n")

    def set_default_headers(self) -> None:
        """Allow pages of any origin to send events: each message carries its authorization."""
        self.clear_header("Server")
        self.set_header("X-Meta", replies.EVENT_META)
        if "Origin" in self.request.headers:
            for name, value in replies.cors_headers(preflight=False).items():
                self.set_header(name, value)

    def _too_large(self, size: int, project_name: str) -> EventReply:
        error = PayloadTooLargeError(size=size, limit_bytes=self._limit)
        return self._events.refuse_unread(error, project_name)

    def _reply(self, reply: EventReply) -> None:
        self.set_status(reply.status)
        self.set_header("Content-Type", replies.JSON_TYPE)
        self.set_header("X-Event-Id", header_value(reply.event_id).decode())
        if reply.error is not None and reply.error.retry_after_s is not None:
            self.set_header("Retry-After", str(reply.error.retry_after_s))
        if reply.replayed:
            self.set_header(replies.REPLAYED_HEADER, "true")
        self.finish(reply.body)


def meta_of(request: httputil.HTTPServerRequest) -> Meta:
    """Read the event's meta data from the query and the headers of a Tornado request."""
    keys = request.headers.get_list(KEY_HEADER)
    # Two keys are refused like a malformed key, because it is unclear which of them is meant.
    key = "\n".join(keys) if keys else None
    # Tornado joins repeated fields, which makes the value invalid.
    traceparent = "" if spans.here is None else request.headers.get("traceparent", "")
    return read_meta(request.query, request.headers.get("Authorization"), key, traceparent)
