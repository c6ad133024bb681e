"""Watches a failed store: reports health conditions, and probes the store until it works again."""

from __future__ import annotations

import logging
import time
from typing import Protocol

from fieldbrook.core.errors import StoreError
from fieldbrook.observability.health import ProcessHealth
from fieldbrook.storage.lmdb.condition import STATES, store_condition

log = logging.getLogger(__name__)

_PROBE_INTERVAL_S = 1.0
_LEAST_BYTES = 16 << 10
_MOST_BYTES = 4 << 20


class Probed(Protocol):
    """A store that can be probed with a write."""

    def probe(self, size: int) -> None:
        """Write `size` bytes and remove them.

        Raises:
            StoreError: the store refuses the write.
        """


class StoreWatch:
    """Reports the failures of a store as health conditions, and probes it until it works again.

    Without a probe, a project without events would not notice that the disk has space again.
    """

    def __init__(self, health: ProcessHealth, store: Probed) -> None:
        self._health = health
        self._store = store
        self._bytes = _LEAST_BYTES
        self._next = 0.0

    def failed(self, error: StoreError, size: int = 0) -> None:
        """Report that the store refused a read, or a write of about `size` bytes."""
        self._bytes = min(max(self._bytes, size), _MOST_BYTES)
        self._next = time.monotonic() + _PROBE_INTERVAL_S
        self._health.raise_(store_condition(error), str(error))
        log.debug("the store failed: %s", error)

    @property
    def is_failing(self) -> bool:
        """Whether the store has failed, and not worked again since."""
        return any(state in self._health for state in STATES)

    def probe(self) -> None:
        """Probe a failed store, at most once a second; clear the conditions when it works."""
        now = time.monotonic()
        if now < self._next or not self.is_failing:
            return
        self._next = now + _PROBE_INTERVAL_S
        try:
            self._store.probe(self._bytes)
        except StoreError as error:
            log.debug("the store still fails: %s", error)
            # Probe with fewer bytes next time: smaller batches may fit although a large one did
            # not.
            self._bytes = max(self._bytes // 2, _LEAST_BYTES)
            return
        self._bytes = _LEAST_BYTES
        self._health.clear(*STATES)
