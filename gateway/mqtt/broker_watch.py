"""Watches whether the embedded broker stores messages, and ends it when only a restart helps.

After one failed write to its disk, the server refuses every later write to that stream, even when
the disk has room again. It reports this only in its log: devices get no PUBACK, and later no
CONNACK. Only a restart helps. The watch therefore checks the disk twice a second and probes the
server's store with a message every 10 s. When a full disk has room again and the server stores
nothing, the watch ends the server at once and the supervisor restarts it, because devices should
be acknowledged within 5 s. When the disk never was full, the watch waits for more failed probes,
because the machine may only be slow.

Source: seen with nats-server 2.15.1 on file systems of 24 and 80 MiB.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from fieldbrook.gateway.mqtt import embedded_broker
from fieldbrook.observability.health import BROKER_FULL, ProcessHealth

log = logging.getLogger(__name__)

TICK_S = 0.5
PROBE_S = 10.0
AGAIN_S = 1.0  # between probes while something is wrong
PROBE_LIMIT_S = 5.0
SHORT_LIMIT_S = 1.0  # time limit of a probe when the disk is the likely cause
SURE_AFTER = 2  # failed probes before the health condition is raised: a machine may be slow
END_AFTER = 4  # failed probes before the server is ended when the disk had room all the time
ROOM_BYTES = 16 << 20  # a few blocks of the server's store
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0  # back-off between restarts that do not help

Probe = Callable[[float], Awaitable[str | None]]


class BrokerWatch:
    """Watches one broker; `check` is one step.

    Args:
        data: the node's data folder.
        probe: asks the broker to store a message within the given seconds. Returns "" when it
            did, the reason when it did not, and None without a connection.
        health: where the health condition is raised.
        now: a monotonic clock in seconds.
        end: ends the server; returns False when it could not.
    """

    def __init__(
        self,
        data: Path,
        probe: Probe,
        health: ProcessHealth,
        now: Callable[[], float],
        end: Callable[[Path], bool] = embedded_broker.end,
    ) -> None:
        self._data = data
        self._probe = probe
        self._health = health
        self._now = now
        self._end = end
        self._failures = 0
        self._short = False  # whether the disk was full since the server last stored a message
        self._next = 0.0
        self._pause_s = 0.0
        self._ended = -LONGEST_PAUSE_S

    async def run(self) -> None:
        """Watch until the task is cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            await self.check()

    async def check(self) -> None:
        """Check the disk, and probe the broker when a probe is due."""
        room = self._has_room()
        if not room and not self._short:
            self._short, self._next = True, 0.0
        if self._now() < self._next and not (room and self._short):
            return
        reason = await self._probe(SHORT_LIMIT_S if self._short else PROBE_LIMIT_S)
        if reason is None:
            return  # the health condition `no_broker` covers this
        self._next = self._now() + (AGAIN_S if reason or self._short else PROBE_S)
        if not reason:
            self._failures, self._pause_s = 0, 0.0
            self._short = not room
            self._health.clear(BROKER_FULL)
            return
        self._failures += 1
        if self._failures >= SURE_AFTER:
            self._health.raise_(BROKER_FULL, reason)
        if room and (self._short or self._failures >= END_AFTER):
            self._end_server()

    def _end_server(self) -> None:
        if self._now() - self._ended < self._pause_s or not self._end(self._data):
            return
        self._ended, self._failures = self._now(), SURE_AFTER
        self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
        log.warning(
            "the embedded broker stores no messages although the disk has space; it was ended, "
            "so that it starts again"
        )

    def _has_room(self) -> bool:
        try:
            state = os.statvfs(self._data / "broker" / "store")
        except OSError:
            return False
        return state.f_bavail * state.f_frsize >= ROOM_BYTES
