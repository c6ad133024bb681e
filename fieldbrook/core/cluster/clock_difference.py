"""The difference between the clocks of two hosts, measured with heartbeats like in NTP.

A heartbeat contains the sender's clock, and the mark of the last heartbeat that the sender has
received. From the mark the receiver computes the round trip time. It assumes that the heartbeat
took half of this time, so the error is at most the other half.

Source: RFC 5905, section 8 (offset and delay) and section 10 (the clock filter: of the last
samples, the one with the shortest round trip is the best).
"""

from __future__ import annotations

import collections
from typing import NamedTuple

_SAMPLES = 20


class Difference(NamedTuple):
    """How many seconds the other clock is ahead of this one, and the largest error."""

    seconds: float
    error_s: float

    def exceeds(self, limit_s: float) -> bool:
        """Return whether the clocks certainly differ by more than `limit_s`."""
        return abs(self.seconds) - self.error_s > limit_s


class ClockDifference:
    """Compares the clock of one other host with the clock of this host."""

    def __init__(self) -> None:
        self._samples: collections.deque[Difference] = collections.deque(maxlen=_SAMPLES)

    def add(self, theirs_s: float, mine_s: float, round_trip_s: float) -> None:
        """Add a sample from a heartbeat.

        Args:
            theirs_s: the other clock when the heartbeat was sent, in Unix seconds.
            mine_s: this clock when the heartbeat arrived, in Unix seconds.
            round_trip_s: the travel time of this heartbeat and of the one that it answers.
        """
        error_s = max(0.0, round_trip_s) / 2
        self._samples.append(Difference(theirs_s + error_s - mine_s, error_s))

    def clear(self) -> None:
        """Remove all samples, because the other host has been silent meanwhile."""
        self._samples.clear()

    @property
    def best(self) -> Difference | None:
        """The last sample with the smallest error; None without samples."""
        return min(self._samples, key=lambda one: one.error_s, default=None)
