"""Requests that arrive before their application is made."""

from __future__ import annotations

import asyncio
from typing import Any

from tornado import httputil, routing

from fieldbrook.gateway.http.later import LaterApplication

LINE = httputil.RequestStartLine("POST", "/project", "HTTP/1.1")


class Recorder(httputil.HTTPMessageDelegate):
    """Keeps what it is told of a request."""

    def __init__(self) -> None:
        self.told: list[object] = []

    async def headers_received(self, start_line: Any, headers: httputil.HTTPHeaders) -> None:
        self.told.append(start_line.path)

    def data_received(self, chunk: bytes) -> None:
        self.told.append(chunk)

    def finish(self) -> None:
        self.told.append("finished")

    def on_connection_close(self) -> None:
        self.told.append("closed")


class Application(routing.Router):
    """Gives every request to one recorder."""

    def __init__(self) -> None:
        self.recorder = Recorder()

    def find_handler(
        self, request: httputil.HTTPServerRequest, **kwargs: Any
    ) -> httputil.HTTPMessageDelegate:
        return self.recorder


def delegate_of(later: LaterApplication) -> httputil.HTTPMessageDelegate:
    headers = httputil.HTTPHeaders({"Host": "node.example"})
    request = httputil.HTTPServerRequest(start_line=LINE, headers=headers)
    delegate = later.find_handler(request)
    assert delegate is not None
    return delegate


async def test_a_request_waits_for_its_application_and_then_goes_to_it() -> None:
    later, application = LaterApplication(), Application()
    delegate = delegate_of(later)
    head = delegate.headers_received(LINE, httputil.HTTPHeaders())
    assert head is not None
    waiting = asyncio.ensure_future(head)
    await asyncio.sleep(0)
    assert not waiting.done()
    later.set(application)
    await waiting
    delegate.data_received(b"body")
    delegate.finish()
    assert application.recorder.told == ["/project", b"body", "finished"]


async def test_a_later_request_does_not_wait() -> None:
    later, application = LaterApplication(), Application()
    later.set(application)
    assert delegate_of(later) is application.recorder


async def test_a_client_that_goes_away_while_its_request_waits_harms_no_other() -> None:
    later, application = LaterApplication(), Application()
    first, second = delegate_of(later), delegate_of(later)
    heads = [one.headers_received(LINE, httputil.HTTPHeaders()) for one in (first, second)]
    gone, waiting = (asyncio.ensure_future(head) for head in heads if head is not None)
    await asyncio.sleep(0)
    first.on_connection_close()
    gone.cancel()
    later.set(application)
    await waiting
    second.finish()
    assert application.recorder.told == ["/project", "finished"]
