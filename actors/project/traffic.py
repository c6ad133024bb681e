"""How many events of a project's window have been taken: counted here, in one place, and
stored with the batch that they were part of.

Windows are of fixed length and follow each other. What the node itself sends (ticks of
cron jobs, what monitors see) is not counted: nobody outside can make more of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fieldbrook.core.durations import format_duration
from fieldbrook.core.errors import TrafficLimitExceededError
from fieldbrook.core.model import NODE_PUBLISHER, TrafficLimit

_ALL = NODE_PUBLISHER  # its own count is not needed: that of the whole project lies there

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, int, int]).decode


def counter_key(publisher_id: int) -> bytes:
    """Where the count of a publisher, or with the node's own that of the project, is stored."""
    return b"traffic/EVENT/" + publisher_id.to_bytes(8, "big")


def window_of(limit: TrafficLimit, now_ms: int) -> int:
    """The number of the window that a time lies in."""
    return (now_ms - limit.start_at) // limit.duration_ms


def seconds_left(limit: TrafficLimit, now_ms: int) -> int:
    """Whole seconds until the next window, at least one."""
    end_ms = limit.start_at + (window_of(limit, now_ms) + 1) * limit.duration_ms
    return max(1, -(-(end_ms - now_ms) // 1_000))


class TrafficGate:
    """Lets a project's events through up to its limit.

    Args:
        read: what was stored under a key, as of the last commit.
    """

    def __init__(self, read: Callable[[bytes], bytes | None]) -> None:
        self._read = read
        self._limit: TrafficLimit | None = None
        self._window = 0
        self._counts: dict[int, int] = {}
        self._changed: set[int] = set()

    def configure(self, limit: TrafficLimit | None) -> None:
        """Have this limit; counts of the window go on when only the threshold is another."""
        same = limit is not None and self._limit is not None and _windows(limit, self._limit)
        self._limit = limit
        if not same:
            self._forget()

    @property
    def active(self) -> bool:
        """Whether there is a limit at all."""
        return self._limit is not None

    def take(self, publisher_id: int, now_ms: int) -> TrafficLimitExceededError | None:
        """Count an event; or the reason why it may not run now, and then it is not counted."""
        limit = self._limit
        if limit is None or publisher_id == NODE_PUBLISHER:
            return None
        window = window_of(limit, now_ms)
        if window != self._window:
            self._forget()
            self._window = window
        total = self._count(limit, _ALL)
        if total >= limit.threshold:
            return _exceeded(limit, "the project", limit.threshold, now_ms)
        if limit.publisher_threshold:
            own = self._count(limit, publisher_id)
            if own >= limit.publisher_threshold:
                who = f"publisher {publisher_id}"
                return _exceeded(limit, who, limit.publisher_threshold, now_ms)
            self._set(publisher_id, own + 1)
        self._set(_ALL, total + 1)
        return None

    def take_changes(self) -> dict[bytes, bytes]:
        """What the batch has to store; once."""
        if not self._changed or self._limit is None:
            return {}
        limit_id, window = self._limit.traffic_limit_id, self._window
        changes = {
            counter_key(n): _encode((limit_id, window, self._counts[n])) for n in self._changed
        }
        self._changed.clear()
        return changes

    def roll_back(self) -> None:
        """The batch was not stored: its events were not taken."""
        self._forget()

    def _count(self, limit: TrafficLimit, publisher_id: int) -> int:
        count = self._counts.get(publisher_id)
        if count is None:
            stored: Any = self._read(counter_key(publisher_id))
            count = 0
            if stored is not None:
                limit_id, window, found = _decode(stored)
                if (limit_id, window) == (limit.traffic_limit_id, self._window):
                    count = found
            self._counts[publisher_id] = count
        return count

    def _set(self, publisher_id: int, count: int) -> None:
        self._counts[publisher_id] = count
        self._changed.add(publisher_id)

    def _forget(self) -> None:
        self._counts.clear()
        self._changed.clear()


def _windows(one: TrafficLimit, other: TrafficLimit) -> bool:
    """Whether two limits count in the same windows."""
    return (one.traffic_limit_id, one.start_at, one.duration_ms) == (
        other.traffic_limit_id,
        other.start_at,
        other.duration_ms,
    )


def _exceeded(
    limit: TrafficLimit, who: str, threshold: int, now_ms: int
) -> TrafficLimitExceededError:
    return TrafficLimitExceededError(
        who=who,
        threshold=threshold,
        duration=format_duration(limit.duration_ms),
        retry_after_s=seconds_left(limit, now_ms),
    )
