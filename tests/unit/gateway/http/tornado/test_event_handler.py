"""An event whose client disconnects before the end of its body."""

from __future__ import annotations

import asyncio
from typing import cast

from tornado import httpserver, web

from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.http.tornado.event_handler import EventHandler
from fieldbrook.gateway.memory_budget import UNCHARGED_BYTES, Shared

_SENT = UNCHARGED_BYTES + 4
BEGUN = b"POST /e/room HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n" + bytes(_SENT)


def waiting() -> int:
    """Return the number of requests in progress."""
    tasks = (repr(task.get_coro()) for task in asyncio.all_tasks())
    return sum("_execute" in task for task in tasks)


async def state(wanted: int) -> None:
    async with asyncio.timeout(60):
        while waiting() != wanted:
            await asyncio.sleep(0.001)


async def test_a_request_that_was_cut_off_is_served_no_longer_and_gives_its_room_back() -> None:
    budget = Shared(1 << 20, 100)
    nobody = cast("EventService", None)  # no event is ever complete
    given = {"events": nobody, "body_limit_bytes": 1 << 20, "memory_budget": budget}
    server = httpserver.HTTPServer(web.Application([(r"/e/([^/]+)", EventHandler, given)]))
    server.listen(0, "127.0.0.1")
    (listener,) = server._sockets.values()
    writers = []
    for _ in range(3):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(BEGUN)
        writers.append(writer)
    await state(3)
    while budget.used < 3 * (_SENT - UNCHARGED_BYTES):
        await asyncio.sleep(0.001)
    for writer in writers:
        writer.transport.abort()
    await state(0)
    assert budget.used == 0
    server.stop()
    await server.close_all_connections()
