"""The traffic limit of a project: counts its events per time window.

The counts are stored with the batch of the events. Windows have a fixed length and follow each
other without gaps. Events of the node itself (ticks of cron jobs, results of monitors) are not
counted, because no outside sender controls their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fieldbrook.core.durations import format_duration
from fieldbrook.core.errors import TrafficLimitExceededError
from fieldbrook.core.model import NODE_PUBLISHER, TrafficLimit

_ALL = NODE_PUBLISHER  # key of the project's count; events of the node are not counted

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, int, int]).decode


def counter_key(publisher_id: int) -> bytes:
    """Return the key of a publisher's count; `NODE_PUBLISHER` gives the key of the project's."""
    return b"traffic/EVENT/" + publisher_id.to_bytes(8, "big")


def window_of(limit: TrafficLimit, now_ms: int) -> int:
    """Return the number of the window that contains a time."""
    return (now_ms - limit.start_at) // limit.duration_ms


def seconds_left(limit: TrafficLimit, now_ms: int) -> int:
    """Whole seconds until the next window, at least one."""
    end_ms = limit.start_at + (window_of(limit, now_ms) + 1) * limit.duration_ms
    return max(1, -(-(end_ms - now_ms) // 1_000))


class TrafficGate:
    """Admits a project's events up to its traffic limit.

    Args:
        read: returns the value that a key had at the last commit.
    """

    def __init__(self, read: Callable[[bytes], bytes | None]) -> None:
        self._read = read
        self._limit: TrafficLimit | None = None
        self._window = 0
        self._counts: dict[int, int] = {}
        self._changed: set[int] = set()

    def configure(self, limit: TrafficLimit | None) -> None:
        """Set the limit; the counts of the current window are kept if only thresholds have
        changed."""
        same = limit is not None and self._limit is not None and _same_windows(limit, self._limit)
        self._limit = limit
        if not same:
            self._forget()

    @property
    def active(self) -> bool:
        """Whether the project has a limit."""
        return self._limit is not None

    def admit(self, publisher_id: int, now_ms: int) -> TrafficLimitExceededError | None:
        """Count an event, or return the error that refuses it; a refused event is not counted."""
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

    def pop_changes(self) -> dict[bytes, bytes]:
        """Return the changed counts for the batch to store, and mark them as stored."""
        if not self._changed or self._limit is None:
            return {}
        limit_id, window = self._limit.traffic_limit_id, self._window
        changes = {
            counter_key(n): _encode((limit_id, window, self._counts[n])) for n in self._changed
        }
        self._changed.clear()
        return changes

    def roll_back(self) -> None:
        """Drop the counts of a batch that was not stored."""
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


def _same_windows(one: TrafficLimit, other: TrafficLimit) -> bool:
    """Whether two limits are the same limit with the same windows."""
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
