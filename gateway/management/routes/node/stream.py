"""`/stream` as server-sent events, for the command line; pages use a WebSocket.

Source: ours.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from fieldbrook.gateway.management.framework.route import Call, Route, Stream
from fieldbrook.gateway.management.live.messages import Follow, Topic
from fieldbrook.gateway.management.live.page import SILENCE_S, Page
from fieldbrook.gateway.management.live.topics import source_of

_ONLY = 1  # the id of the only topic
_NOTICED_S = 0.5  # how long a disconnected client keeps its place


class FollowTopic(msgspec.Struct, frozen=True, kw_only=True):
    """The topic, the project's name, the topic's filters, and the `place` to continue after."""

    topic: Topic
    project: str = ""
    after: str = ""
    type: str = ""
    publisher: str = ""
    outcome: str = ""
    source: str = ""
    level: str = ""
    contains: str = ""
    event_id: str = msgspec.field(name="eventID", default="")
    instance_id: str = msgspec.field(name="instanceID", default="")


async def follow_topic(call: Call[None, FollowTopic]) -> Stream:
    """Follow one topic as server-sent events; with `Upgrade: websocket`, several topics.

    Topics are `series`, `events`, `logs`, `health` (administrators) and `letters`. Each event has
    new rows, the oldest first, and exact counts of all that came; its id is the place to go on
    after, as `after` or `Last-Event-ID`. An access key also needs READONLY on the group of the
    topic: Project, Event, Wasm Log, Account, Event.
    """
    query = call.query
    given = msgspec.to_builtins(query)
    filters = {
        name: value
        for name, value in given.items()
        if value and name not in ("topic", "project", "after")
    }
    request = Follow(
        id=_ONLY,
        topic=query.topic,
        project=query.project,
        filter=filters,
        after=call.last_event_id or query.after,
    )
    assert call.caller is not None
    source_of(call.context, call.workers, call.caller, request)  # raises before the answer begins
    page = Page(call.context, call.workers, call.channels, call.caller)
    return Stream(_chunks(page, request), call.account)


async def _chunks(page: Page, request: Follow) -> AsyncGenerator[bytes, None]:
    heard = time.monotonic()
    try:
        page.follow(request)
        while (data := await page.next(_NOTICED_S)) is not None:
            if not data and time.monotonic() < heard + SILENCE_S:
                yield b""
                continue
            heard = time.monotonic()
            if not data:
                yield b": nothing new\n\n"
                continue
            found: Any = msgspec.json.decode(data)
            place = str(found.get("place", ""))
            name = b"event: error\n" if "error" in found else b""
            mark = b"id: %b\n" % place.encode() if place else b""
            yield b"%b%bdata: %b\n\n" % (name, mark, data)
    finally:
        page.close()


ROUTES: tuple[Route, ...] = (Route("GET", "/stream", "Stream", follow_topic),)
