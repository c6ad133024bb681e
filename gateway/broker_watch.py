"""Whether the embedded broker stores what it is sent.

After one write that its disk refused the server refuses every later one of that stream, with
room again too, and says so to its log alone: devices get no PUBACK, later no CONNACK. So a
message is sent to its store now and then; when none is stored although there is room, the
server is ended, and whoever supervises it starts it again, which helps.

Source: seen with nats-server 2.15.1 on a file system of 24 MiB.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from fieldbrook import broker
from fieldbrook.health import BROKER_FULL, Reporter

log = logging.getLogger(__name__)

PROBE_S = 10.0
AGAIN_S = 1.0  # between probes while something is wrong
SURE_AFTER = 2  # probes that failed, before that is called a trouble: a machine may be slow
END_AFTER = 4
ROOM_BYTES = 16 << 20  # a few of the server's blocks
PAUSE_S = 60.0  # between two ends of the server

Probe = Callable[[], Awaitable[str | None]]


class BrokerWatch:
    """Watches one broker; `look` is a step of it.

    Args:
        data: the node's data folder.
        probe: has the broker store a message; why it did not, "" when it did, or None when
            nobody knows because there is no connection.
        health: where the trouble is told.
        now: seconds of a clock that does not jump.
        end: ends the server.
    """

    def __init__(
        self,
        data: Path,
        probe: Probe,
        health: Reporter,
        now: Callable[[], float],
        end: Callable[[Path], bool] = broker.end,
    ) -> None:
        self._data = data
        self._probe = probe
        self._health = health
        self._now = now
        self._end = end
        self._failures = 0
        self._ended = -PAUSE_S

    async def run(self) -> None:
        """Watch for as long as the task lives."""
        while True:
            await asyncio.sleep(AGAIN_S if self._failures else PROBE_S)
            await self.look()

    async def look(self) -> None:
        """Try the broker once."""
        reason = await self._probe()
        if reason is None:
            return  # `no_broker` tells that
        if not reason:
            self._failures = 0
            self._health.end(BROKER_FULL)
            return
        self._failures += 1
        if self._failures >= SURE_AFTER:
            self._health.begin(BROKER_FULL, reason)
        if self._failures < END_AFTER or not self._has_room():
            return
        if self._now() - self._ended >= PAUSE_S and self._end(self._data):
            self._ended, self._failures = self._now(), SURE_AFTER
            log.warning("the embedded broker stores nothing though there is room: it was ended")

    def _has_room(self) -> bool:
        try:
            state = os.statvfs(self._data / "broker" / "store")
        except OSError:
            return False
        return state.f_bavail * state.f_frsize >= ROOM_BYTES
