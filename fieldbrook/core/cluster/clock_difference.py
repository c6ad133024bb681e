"""How far the clock of another host is ahead: from beats, as NTP does it.

A beat carries the sender's clock, and sends back the mark of the last beat that the sender has got.
So the receiver knows how long both ways took together. The beat was sent at some moment of that
time: half of it is assumed, and half of it is the largest error.

Source: RFC 5905, section 8 (offset and delay) and section 10 (the clock filter: of the last
samples, the one with the shortest round trip is the best).
"""

from __future__ import annotations

import collections
from typing import NamedTuple

_SAMPLES = 20


class Difference(NamedTuple):
    """How many seconds the other clock is ahead, and by how much that may be wrong."""

    seconds: float
    error_s: float

    def exceeds(self, limit_s: float) -> bool:
        """Whether the clocks are surely further apart than `limit_s`."""
        return abs(self.seconds) - self.error_s > limit_s


class ClockDifference:
    """Compares the clock of one other host with this one's."""

    def __init__(self) -> None:
        self._samples: collections.deque[Difference] = collections.deque(maxlen=_SAMPLES)

    def add(self, theirs_s: float, mine_s: float, round_trip_s: float) -> None:
        """Take a beat.

        Args:
            theirs_s: the other clock when the beat was sent, in Unix seconds.
            mine_s: this clock when it arrived.
            round_trip_s: the time on the way of this beat and of the one that it answers.
        """
        error_s = max(0.0, round_trip_s) / 2
        self._samples.append(Difference(theirs_s + error_s - mine_s, error_s))

    def clear(self) -> None:
        """Forget everything: the other host was silent."""
        self._samples.clear()

    @property
    def best(self) -> Difference | None:
        """The most exact of the last samples; None without any."""
        return min(self._samples, key=lambda one: one.error_s, default=None)
