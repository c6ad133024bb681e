"""Checks for conditions that no child reports: disk, clock, secrets, parked outbox entries."""

from __future__ import annotations

import contextlib
import shutil
import time

from fieldbrook.core import clock
from fieldbrook.core.settings import Settings
from fieldbrook.observability import health, metrics, metrics_table
from fieldbrook.security import node_secrets

_SECRETS_EVERY = 5  # the secrets are checked at every fifth call
_DISK_AGAIN = 1.25  # the disk condition ends when this multiple of the reserve is free


class NodeChecks:
    """Checks the node as a whole, and raises and clears its conditions on the board."""

    def __init__(self, settings: Settings, board: health.Board, table: metrics_table.Table) -> None:
        self._settings = settings
        self._board = board
        self._table = table
        self._clock = health.ClockWatch(time.monotonic(), clock.now_ms())
        self._calls = 0

    def run(self, now: float, *, parked: bool) -> None:
        """Check everything once; `parked` says whether outbox entries are held back."""
        self._check_disk()
        self._check_parked(parked=parked)
        self._check_clock(now)
        if self._calls % _SECRETS_EVERY == 0:
            self._check_secrets()
        self._calls += 1

    def _check_disk(self) -> None:
        reserve = self._settings.disk_reserve_bytes
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(self._settings.data).free
            if free < reserve:
                detail = f"{free >> 20} MiB are free, less than disk_reserve_bytes"
                self._board.raise_(health.DISK, health.DISK_LOW, detail)
            elif free >= reserve * _DISK_AGAIN:
                self._board.clear(health.DISK, health.DISK_LOW)

    def _check_clock(self, now: float) -> None:
        if self._clock.is_behind(now, clock.now_ms()):
            detail = f"by {self._clock.by_ms / 1000:.0f} s"
            self._board.raise_(health.CLOCK, health.CLOCK_BACK, detail)
        else:
            self._board.clear(health.CLOCK, health.CLOCK_BACK)

    def _check_secrets(self) -> None:
        unreadable = node_secrets.problems_in(self._settings.data / "secrets")
        if unreadable:
            self._board.raise_(health.SECRETS, health.UNREADABLE, "; ".join(unreadable))
        else:
            self._board.clear(health.SECRETS, health.UNREADABLE)

    def _check_parked(self, *, parked: bool) -> None:
        """Count the outbox entries that a restored node holds back.

        The metrics contain all of them, because projects with outbox entries do not retire.
        """
        if not parked:
            metrics.put(metrics.OUTBOX_PARKED, 0)
            self._board.clear(health.OUTBOX, health.PARKED)
            return
        waiting = [row.numbers[metrics.OUTBOX_PENDING] for row in self._table.read()]
        count = int(sum(waiting))
        metrics.put(metrics.OUTBOX_PARKED, count)
        detail = f"{count} parked, of {sum(map(bool, waiting))} projects; this data was restored"
        self._board.update(health.OUTBOX, health.PARKED, detail)
