"""Results of the events of a fleet: counts, reasons, latencies."""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from dataclasses import dataclass, field

from fieldbrook.device import Accepted, Later, Refused

_REASONS_LIMIT = 50
_STEP = 1.05  # ratio of the upper bounds of two neighbouring classes of latencies
_SHORTEST_MS = 0.01
_RECENT_S = 5.0


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures at one moment. Latencies are None before the first commit."""

    seconds: float
    sent: int
    committed: int
    failed_handlers: int
    refused: dict[str, int]
    retries: int
    last_problem: str
    p50_ms: float | None
    p99_ms: float | None
    per_s: float
    """Commits per second: over the last seconds during the run, over the whole run at the end."""

    @property
    def waiting(self) -> int:
        """The number of events that were sent and not answered."""
        return self.sent - self.committed - sum(self.refused.values())

    def as_json(self) -> dict[str, object]:
        """Return the figures for programs."""
        return {
            "seconds": round(self.seconds, 3),
            "sent": self.sent,
            "committed": self.committed,
            "failedHandlers": self.failed_handlers,
            "refused": self.refused,
            "unanswered": self.waiting,
            "retries": self.retries,
            "lastProblem": self.last_problem,
            "p50Ms": self.p50_ms,
            "p99Ms": self.p99_ms,
            "perSecond": round(self.per_s, 1),
        }


@dataclass
class Tally:
    """Counts the results that devices report; thread-safe."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sent: int = 0
    _committed: int = 0
    _failed_handlers: int = 0
    _retries: int = 0
    _refused: Counter[str] = field(default_factory=Counter)
    _last_problem: str = ""
    _latencies: Counter[int] = field(default_factory=Counter)
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def sent(self) -> None:
        """Count an event that a device sends for the first time."""
        with self._lock:
            self._sent += 1

    def committed(self, accepted: Accepted, latency_s: float) -> None:
        """Count an event that the node has handled."""
        has_failed = any(result.error or result.code < 0 for result in accepted.results)
        with self._lock:
            self._committed += 1
            self._failed_handlers += has_failed
            self._latencies[_class_of(latency_s * 1000)] += 1

    def refused(self, refused: Refused) -> None:
        """Count an event that the node has refused permanently."""
        with self._lock:
            known = refused.key in self._refused or len(self._refused) < _REASONS_LIMIT
            self._refused[refused.key if known else "other"] += 1
            self._last_problem = str(refused)

    def has_to_wait(self, later: Later) -> None:
        """Count an event that will be sent again."""
        with self._lock:
            self._retries += 1
            self._last_problem = later.reason

    def read(self, seconds: float, *, is_over: bool = False) -> Figures:
        """Return the figures at this number of seconds after the start."""
        with self._lock:
            self._recent.append((seconds, self._committed))
            while seconds - self._recent[0][0] > _RECENT_S:
                self._recent.popleft()
            since, before = (0.0, 0) if is_over else self._recent[0]
            passed = seconds - since
            return Figures(
                seconds=seconds,
                sent=self._sent,
                committed=self._committed,
                failed_handlers=self._failed_handlers,
                refused=dict(self._refused.most_common()),
                retries=self._retries,
                last_problem=self._last_problem,
                p50_ms=self._percentile(0.5),
                p99_ms=self._percentile(0.99),
                per_s=(self._committed - before) / passed if passed > 0 else 0.0,
            )

    def _percentile(self, share: float) -> float | None:
        left = share * self._committed
        for number in sorted(self._latencies):
            left -= self._latencies[number]
            if left <= 0:
                return float(f"{_SHORTEST_MS * _STEP**number:.3g}")
        return None


def _class_of(latency_ms: float) -> int:
    """Return the class of a latency, by the nearest limit."""
    return round(math.log(max(latency_ms, _SHORTEST_MS) / _SHORTEST_MS, _STEP))
