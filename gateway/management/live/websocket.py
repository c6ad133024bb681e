"""`/stream` as a WebSocket: one connection per page for all its topics.

A browser opens at most six connections to a host over HTTP/1.1. A stream of server-sent events uses
one for each page; WebSockets do not count.

Source: RFC 6455.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from tornado import httputil, routing, websocket

from fieldbrook.core.errors import (
    BadRequestError,
    FieldError,
    InvalidTokenError,
    NodeError,
    TooManyRequestsError,
)
from fieldbrook.gateway import replies
from fieldbrook.gateway.auth import strip_scheme
from fieldbrook.gateway.listening.listener import peer_of
from fieldbrook.gateway.management.base_handler import BaseHandler, Services
from fieldbrook.gateway.management.framework.route import GROUPS
from fieldbrook.gateway.management.live.messages import INCOMING_LIMIT_BYTES, read_incoming
from fieldbrook.gateway.management.live.page import Page
from fieldbrook.gateway.request_target import is_origin
from fieldbrook.security.access_keys import Permission

TOKEN_LIMIT_S = 5.0
_MESSAGES_PER_S = 32
_PING = b'{"ping":true}'
_UNSENT_BYTES = 64 << 10
_REFUSED = 1008


class UpgradeTo(routing.PathMatches):
    """Matches requests for a path that ask for a WebSocket."""

    def match(self, request: httputil.HTTPServerRequest) -> dict[str, Any] | None:
        """See `tornado.routing.Matcher`."""
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return None
        return super().match(request)


class StreamHandler(BaseHandler, websocket.WebSocketHandler):
    """Reads tokens and topics, and sends messages to the page."""

    def initialize(self, services: Services) -> None:
        """Tornado's constructor hook."""
        super().initialize(services)
        self._page: Page | None = None
        self._sending: asyncio.Task[None] | None = None
        self._late: asyncio.TimerHandle | None = None
        self._held = ExitStack()
        self._second = self._received = 0

    @property
    def max_message_size(self) -> int:
        """See `websocket.WebSocketHandler`; a longer message closes the connection."""
        return INCOMING_LIMIT_BYTES

    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open the WebSocket."""
        if not is_origin(self.request.headers.get("Origin", "")):
            self.set_status(HTTPStatus.FORBIDDEN)
            self.finish("the origin is no URL")
        else:
            await super().get(*args, **kwargs)

    def check_origin(self, origin: str) -> bool:
        """Accept only pages of this host, because browsers open WebSockets to any host."""
        page = urlsplit(origin)
        public = urlsplit(self.context.settings.public_url or "")
        own = page.netloc.lower() == self.request.headers.get("Host", "").lower()
        return own or (bool(public.netloc) and page[:2] == (public.scheme, public.netloc.lower()))

    def open(self, *_: str) -> None:
        """Wait for the token."""
        peer = peer_of(self.request.remote_ip or "")
        self._services.unauthenticated.add(self._evict, peer)
        loop = asyncio.get_running_loop()
        self._late = loop.call_later(TOKEN_LIMIT_S, self._refuse_late)
        stream: Any = self.ws_connection and getattr(self.ws_connection, "stream", None)
        if hasattr(stream, "limit_unsent"):
            # Otherwise the kernel buffers megabytes, and a slow client seems to read nothing.
            stream.limit_unsent(_UNSENT_BYTES)
            stream.upgraded = True

    def on_message(self, message: str | bytes) -> None:
        """Handle a message of the client."""
        try:
            self._count()
            if isinstance(message, bytes):
                raise BadRequestError(FieldError("message", "must be text", "body"))
            self._receive(message)
        except NodeError as error:
            if self._page is None:
                self._end(error)
            else:
                self._page.refuse(error)

    def _receive(self, text: str) -> None:
        incoming = read_incoming(text)
        if incoming.token is not None:
            self._sign_in(incoming.token)
        elif self._page is None:
            raise InvalidTokenError(reason="the first message must have the token")
        elif incoming.follow is not None:
            try:
                self._page.follow(incoming.follow)
            except NodeError as error:
                self._page.refuse(error, incoming.follow.id)
        elif incoming.drop is not None:
            self._page.drop(incoming.drop)

    def _sign_in(self, token: str) -> None:
        services = self._services
        caller = services.authenticate(
            strip_scheme(token), GROUPS["stream"], Permission.READONLY, "Stream"
        )
        if self._page is not None:
            self._page.renew(caller)
            return
        self._held.enter_context(services.workers.pages.hold_for(caller.account))
        self._known()
        self._page = Page(self.context, services.workers, services.channels, caller)
        self._sending = asyncio.get_running_loop().create_task(self._send(self._page))

    def _known(self) -> None:
        """Note that the token has arrived, or will not arrive."""
        if self._late is not None:
            self._late.cancel()
        self._services.unauthenticated.discard(self._evict)

    def _count(self) -> None:
        """Raises: TooManyRequestsError, when a client sends too many messages in a second."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._received = second, 0
        self._received += 1
        if self._received > _MESSAGES_PER_S:
            self.close(_REFUSED, "too many messages")
            raise TooManyRequestsError(
                what=f"a stream may send {_MESSAGES_PER_S} messages per second"
            )

    async def _send(self, page: Page) -> None:
        try:
            while (data := await page.next()) is not None:
                await self.write_message(data or _PING)
            self._end(InvalidTokenError(reason="the login has ended or expired: log in again"))
        except NodeError as error:
            self._end(error)
        except websocket.WebSocketClosedError:
            return  # the client has disconnected

    def _refuse_late(self) -> None:
        self._end(
            InvalidTokenError(reason=f"the client sent no token within {TOKEN_LIMIT_S:.0f} s")
        )

    def _evict(self) -> None:
        """Close the connection at once, without an answer and without waiting for the client."""
        stream: Any = self.ws_connection and getattr(self.ws_connection, "stream", None)
        if stream is not None:
            (stream.evict if hasattr(stream, "evict") else stream.close)()

    def _end(self, error: NodeError) -> None:
        """Send the client the reason, and close the connection."""
        body = {"error": error.body(self.context.version)}
        try:
            self.write_message(replies.to_json(body))
        except websocket.WebSocketClosedError:
            return
        self.close(_REFUSED, error.key)

    def on_close(self) -> None:
        """Called by Tornado when the connection has ended."""
        self._known()
        if self._sending is not None:
            self._sending.cancel()
        if self._page is not None:
            self._page.close()
        self._held.close()
