"""Channels: one reader for each topic and filter, independent of the number of followers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol

from fieldbrook.core.errors import NodeError, UnavailableError
from fieldbrook.gateway.management.live.messages import Message, Prepared

log = logging.getLogger(__name__)

TICK_S = 0.25


class Reader(Protocol):
    """Reads one topic. Only one of its methods runs at a time."""

    async def begin(self) -> None:
        """Set the position to the newest row."""

    async def first(self, after: str) -> Message | None:
        """Return the rows for a new follower, from a place to the current position; no rows for "".

        A message without rows contains the current position.
        """

    async def read(self) -> Message | None:
        """Return the new rows since the last call; None if there are none."""


class FlushedReader:
    """A reader of a project's store that first makes the project write its rows in memory."""

    def __init__(self, reader: Reader, flush: Callable[[], Awaitable[None]]) -> None:
        self._reader = reader
        self._flush = flush

    async def begin(self) -> None:
        """See `Reader.begin`."""
        await self._flush()
        await self._reader.begin()

    async def first(self, after: str) -> Message | None:
        """See `Reader.first`; the rows end at the position of the last `read`."""
        return await self._reader.first(after)

    async def read(self) -> Message | None:
        """See `Reader.read`."""
        await self._flush()
        return await self._reader.read()


class Follower(Protocol):
    """A receiver of the messages of a channel."""

    after: str

    def give(self, message: Prepared) -> None:
        """Receive a message; must not block."""

    def fail(self, error: NodeError) -> None:
        """Called when the channel has ended because of an error."""


class Channel:
    """Reads a topic four times a second while it has a follower."""

    def __init__(self, reader: Reader, ended: Callable[[], None]) -> None:
        self._reader = reader
        self._joining: list[Follower] = []
        self._followers: set[Follower] = set()
        self._ended = ended
        self._task = asyncio.get_running_loop().create_task(self._run())

    def join(self, follower: Follower) -> None:
        """Add a follower, from the next read on."""
        self._joining.append(follower)

    def leave(self, follower: Follower) -> None:
        """Remove a follower; the channel ends with its last follower."""
        self._followers.discard(follower)
        if follower in self._joining:
            self._joining.remove(follower)
        if not self._followers and not self._joining:
            self._ended()
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._reader.begin()
            while True:
                if (news := await self._reader.read()) is not None:
                    prepared = Prepared(news)
                    for follower in self._followers:
                        follower.give(prepared)
                await self._welcome()
                await asyncio.sleep(TICK_S)
        except NodeError as error:
            self._fail(error)
        except Exception:
            log.exception("the channel of a live stream failed")
            self._fail(UnavailableError(what="the node could not read the data of this stream"))

    async def _welcome(self) -> None:
        """Send new followers the rows that they have missed; the reader pauses meanwhile."""
        while self._joining:
            follower = self._joining[0]
            news = await self._reader.first(follower.after)
            if follower not in self._joining:  # the follower has left meanwhile
                continue
            self._joining.remove(follower)
            self._followers.add(follower)
            if news is not None:
                follower.give(Prepared(news))

    def _fail(self, error: NodeError) -> None:
        self._ended()
        for follower in (*self._joining, *self._followers):
            follower.fail(error)


class Channels:
    """The channels of one gateway process, by the data that they read."""

    def __init__(self) -> None:
        self._open: dict[Hashable, Channel] = {}

    def __len__(self) -> int:
        return len(self._open)

    def follow(self, key: Hashable, make: Callable[[], Reader], follower: Follower) -> Channel:
        """Join the channel of this key; open it if it does not exist."""
        channel = self._open.get(key)
        if channel is None:
            channel = self._open[key] = Channel(make(), lambda: self._close(key))
        channel.join(follower)
        return channel

    def _close(self, key: Hashable) -> None:
        self._open.pop(key, None)
