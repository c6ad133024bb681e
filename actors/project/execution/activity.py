"""The activity of a project's data thread, from which the supervisor tells whether it hangs."""

from __future__ import annotations

import time


class Activity:
    """What the data thread does now. The data thread writes it, any thread may read it."""

    __slots__ = ("_phase", "busy_since")

    def __init__(self) -> None:
        self.busy_since = 0.0  # monotonic time at which the current run began; 0.0 without a run
        self._phase: tuple[str, float] = ("", 0.0)

    def enter(self, phase: str) -> None:
        """Begin a phase in which no handler runs; "" is a phase without a name."""
        self.busy_since, self._phase = 0.0, (phase, time.monotonic() if phase else 0.0)

    @property
    def since(self) -> float:
        """When the current run or phase began, monotonic; 0.0 without either."""
        return self.busy_since or self._phase[1]

    def current(self) -> tuple[float, str, float]:
        """Return how long a handler has been running, the current phase, and its duration.

        Durations are in seconds; they are 0.0 when no handler runs or no phase is named. A phase
        is work outside a handler, such as "commit".
        """
        now, busy_since, (phase, since) = time.monotonic(), self.busy_since, self._phase
        return now - busy_since if busy_since else 0.0, phase, now - since if phase else 0.0
