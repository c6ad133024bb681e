"""An application that is made after the ports are open: its first requests wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from tornado import httputil, routing


class LaterApplication(routing.Router):
    """Passes requests on to an application as soon as it is there."""

    def __init__(self) -> None:
        self._application: asyncio.Future[routing.Router] = asyncio.Future()

    def set(self, application: routing.Router) -> None:
        """Let the requests that wait, and all later ones, go to this application."""
        self._application.set_result(application)

    def find_handler(
        self, request: httputil.HTTPServerRequest, **kwargs: Any
    ) -> httputil.HTTPMessageDelegate | None:
        """See `routing.Router`."""
        if self._application.done():
            return self._application.result().find_handler(request, **kwargs)
        return _Waiting(request, self._application)


class _Waiting(httputil.HTTPMessageDelegate):
    """A request whose body is not read before its application is there."""

    def __init__(
        self, request: httputil.HTTPServerRequest, application: asyncio.Future[routing.Router]
    ) -> None:
        self._request = request
        self._application = application
        self._inner: httputil.HTTPMessageDelegate | None = None

    async def headers_received(
        self,
        start_line: httputil.RequestStartLine | httputil.ResponseStartLine,
        headers: httputil.HTTPHeaders,
    ) -> None:
        """Wait for the application, and choose its handler."""
        application = await asyncio.shield(self._application)
        self._inner = application.find_handler(self._request)
        assert self._inner is not None, "an application answers every request"
        awaitable = self._inner.headers_received(start_line, headers)
        if awaitable is not None:
            await awaitable

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Pass on a part of the request's body."""
        assert self._inner is not None, "the head comes first"
        return self._inner.data_received(chunk)

    def finish(self) -> None:
        """Pass on the end of the request."""
        assert self._inner is not None, "the head comes first"
        self._inner.finish()

    def on_connection_close(self) -> None:
        """Pass on that the client closed the connection."""
        if self._inner is not None:
            self._inner.on_connection_close()
