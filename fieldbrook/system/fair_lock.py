"""A lock that threads get in turns, by the holders for which they work."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

_WAITS_S = 1.0


class FairLock:
    """A lock whose holders take turns.

    A waiting holder gets the lock after each other holder has had it at most once, regardless of
    how many threads wait for the other holders. The threads of one holder get it in the order of
    their requests.
    """

    def __init__(self, waits_s: float = _WAITS_S) -> None:
        """Create a free lock; `waits_s` is the interval in which waiting threads report."""
        self._waits_s = waits_s
        self._lock = threading.Lock()
        self._is_held = False
        self._waiting: dict[Hashable, deque[threading.Event]] = {}  # in the order of their turns

    @contextmanager
    def hold(self, holder: Hashable, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock for the duration of the `with` block.

        `waiting` is called in intervals until the lock is held, and must not raise.
        """
        turn = threading.Event()
        with self._lock:
            self._waiting.setdefault(holder, deque()).append(turn)
            self._give()
        while not turn.wait(self._waits_s):
            waiting()
        try:
            yield
        finally:
            with self._lock:
                self._is_held = False
                self._give()

    def _give(self) -> None:
        """Give the lock to the next thread if it is free."""
        if self._is_held or not self._waiting:
            return
        holder = next(iter(self._waiting))
        turns = self._waiting.pop(holder)
        self._is_held = True
        turns.popleft().set()
        if turns:
            self._waiting[holder] = turns
