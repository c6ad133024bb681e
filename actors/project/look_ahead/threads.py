"""The threads that run handlers before their turn, for all projects of a process."""

from __future__ import annotations

import logging
import queue
import threading
from typing import Protocol

log = logging.getLogger(__name__)

_JOIN_S = 1.0


class Work(Protocol):
    """Work that these threads can share."""

    def help(self) -> None:
        """Do a share of the work in the calling thread. It raises no errors."""
        ...


class LookAheadThreads:
    """A fixed number of threads that start with the first work and then wait for more.

    Each `put` makes one thread call `help` of the work once, in the order of the calls. The caller
    limits how often the same work waits.

    Args:
        count: the number of threads.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()

    @property
    def awaited(self) -> bool:
        """Whether work waits, because all threads are busy."""
        return not self._queue.empty()

    def put(self, work: Work) -> None:
        """Let one thread help; thread-safe."""
        if not self._threads:
            self._start()
        self._queue.put(work)

    def close(self) -> None:
        """End the threads; wait at most 1 s for each to finish its run."""
        with self._starting:
            for _ in self._threads:
                self._queue.put(None)
            for thread in self._threads:
                thread.join(_JOIN_S)

    def _start(self) -> None:
        with self._starting:
            while len(self._threads) < self.count:
                number = len(self._threads)
                thread = threading.Thread(
                    target=self._serve, name=f"look-ahead:{number}", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    log.warning("started only %d of %d look-ahead threads", number, self.count)
                    self.count = number
                    return
                self._threads.append(thread)

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            work.help()
