"""Whether the embedded broker stores what it is sent.

After one write that its disk refused the server refuses every later one of that stream, with
room again too, and says so to its log alone: devices get no PUBACK, later no CONNACK. Only a new
start helps. So the disk is looked at twice a second and a message is sent to the server's store
now and then. When there is room again on a disk that had none, and the server stores nothing,
it is ended at once, and whoever supervises it starts it again: devices are to be acknowledged
within 5 s. Where the disk was never seen short of room it takes more to be sure, because the
machine may only be slow.

Source: seen with nats-server 2.15.1 on file systems of 24 and 80 MiB.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from fieldbrook.gateway.mqtt import embedded_broker
from fieldbrook.observability.health import BROKER_FULL, Reporter

log = logging.getLogger(__name__)

TICK_S = 0.5
PROBE_S = 10.0
AGAIN_S = 1.0  # between probes while something is wrong
PROBE_LIMIT_S = 5.0
SHORT_LIMIT_S = 1.0  # of a probe where the disk is the likely cause
SURE_AFTER = 2  # probes that failed, before that is called a trouble: a machine may be slow
END_AFTER = 4  # where the disk had room all the time
ROOM_BYTES = 16 << 20  # a few of the server's blocks
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0  # between two ends of the server, while none helps

Probe = Callable[[float], Awaitable[str | None]]


class BrokerWatch:
    """Watches one broker; `look` is a step of it.

    Args:
        data: the node's data folder.
        probe: has the broker store a message within so many seconds; why it did not, "" when
            it did, or None when nobody knows because there is no connection.
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
        end: Callable[[Path], bool] = embedded_broker.end,
    ) -> None:
        self._data = data
        self._probe = probe
        self._health = health
        self._now = now
        self._end = end
        self._failures = 0
        self._short = False  # of room, since the server has last stored something
        self._next = 0.0
        self._pause_s = 0.0
        self._ended = -LONGEST_PAUSE_S

    async def run(self) -> None:
        """Watch for as long as the task lives."""
        while True:
            await asyncio.sleep(TICK_S)
            await self.look()

    async def look(self) -> None:
        """Look at the disk, and try the broker when it is time."""
        room = self._has_room()
        if not room and not self._short:
            self._short, self._next = True, 0.0
        if self._now() < self._next and not (room and self._short):
            return
        reason = await self._probe(SHORT_LIMIT_S if self._short else PROBE_LIMIT_S)
        if reason is None:
            return  # `no_broker` tells that
        self._next = self._now() + (AGAIN_S if reason or self._short else PROBE_S)
        if not reason:
            self._failures, self._pause_s = 0, 0.0
            self._short = not room
            self._health.end(BROKER_FULL)
            return
        self._failures += 1
        if self._failures >= SURE_AFTER:
            self._health.begin(BROKER_FULL, reason)
        if room and (self._short or self._failures >= END_AFTER):
            self._end_server()

    def _end_server(self) -> None:
        if self._now() - self._ended < self._pause_s or not self._end(self._data):
            return
        self._ended, self._failures = self._now(), SURE_AFTER
        self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
        log.warning("the embedded broker stores nothing though there is room: it was ended")

    def _has_room(self) -> bool:
        try:
            state = os.statvfs(self._data / "broker" / "store")
        except OSError:
            return False
        return state.f_bavail * state.f_frsize >= ROOM_BYTES
