"""Whether a store can be written again after it could not."""

from __future__ import annotations

import logging
import time
from typing import Protocol

from fieldbrook.core.errors import StoreError
from fieldbrook.observability.health import Reporter
from fieldbrook.storage.lmdb.condition import STATES, trouble_of

log = logging.getLogger(__name__)

_LOOK_S = 1.0
_LEAST_BYTES = 16 << 10
_MOST_BYTES = 4 << 20


class Probed(Protocol):
    """A store that can be asked to write and forget something."""

    def probe(self, size: int) -> None:
        """Write so many bytes, and remove them.

        Raises:
            StoreError: it cannot.
        """


class StoreWatch:
    """Reports what a store's failures mean, and tries it until it takes something again:
    somebody may have made room, and no event may come to find that out."""

    def __init__(self, health: Reporter, store: Probed) -> None:
        self._health = health
        self._store = store
        self._bytes = _LEAST_BYTES
        self._next = 0.0

    def failed(self, error: StoreError, size: int = 0) -> None:
        """The store refused to read, or to write about so many bytes."""
        self._bytes = min(max(self._bytes, size), _MOST_BYTES)
        self._next = time.monotonic() + _LOOK_S
        self._health.begin(trouble_of(error), str(error))
        log.debug("store: %s", error)

    def look_again(self) -> None:
        """Try it, once a second at most, if something was wrong."""
        now = time.monotonic()
        if now < self._next or not any(state in self._health for state in STATES):
            return
        self._next = now + _LOOK_S
        try:
            self._store.probe(self._bytes)
        except StoreError as error:
            log.debug("store: still %s", error)
            # One huge batch that was refused says little about the others that will come.
            self._bytes = max(self._bytes // 2, _LEAST_BYTES)
            return
        self._bytes = _LEAST_BYTES
        self._health.end(*STATES)
