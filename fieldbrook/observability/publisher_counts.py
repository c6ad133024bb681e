"""Counts of publishers: events sent through this process, and the time of the last answer.

Counting an event is one addition to `fresh`. Once a second the gateway adds these counts to a table
of limited size; the clock is read only then.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

PUBLISHERS_LIMIT = 50_000
"""The most publishers that a process remembers, in about 10 MiB; those that have been silent
longest are removed."""


_NEVER = 0, 0


class Seen(NamedTuple):
    """The Unix time of a publisher's last answered event, and the number of its events."""

    last_s: int
    events: int


class PublisherCounts:
    """The counts of one process; they begin with the process and are never stored."""

    def __init__(
        self, limit: int = PUBLISHERS_LIMIT, clock: Callable[[], float] = time.time
    ) -> None:
        self.fresh: defaultdict[int, int] = defaultdict(int)
        """Events by publisher id since the last fold."""
        # The fields of `Seen`; publishers that were silent longest come first.
        self._known: dict[int, tuple[int, int]] = {}
        self._limit = limit
        self._clock = clock

    def fold(self) -> None:
        """Add the fresh counts to the table; called about once a second."""
        if not self.fresh:
            return
        fresh, self.fresh = self.fresh, defaultdict(int)
        now_s, known = int(self._clock()), self._known
        for publisher_id, count in fresh.items():
            _, before = known.pop(publisher_id, _NEVER)
            known[publisher_id] = now_s, before + count
        for publisher_id in [*islice(known, max(0, len(known) - self._limit))]:
            del known[publisher_id]

    def read(self, publisher_ids: Sequence[int]) -> list[Seen | None]:
        """Return the counts of these publishers, in the same order."""
        self.fold()
        found = [self._known.get(publisher_id) for publisher_id in publisher_ids]
        return [None if seen is None else Seen(*seen) for seen in found]


here = PublisherCounts()
"""The counts of this process."""
