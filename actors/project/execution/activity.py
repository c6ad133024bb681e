"""The current step of a project. The supervisor uses it to detect a project that hangs."""

from __future__ import annotations

import time

STATEMENT = "statement"


class Activity:
    """The current step of a project. The thread that runs the project's turn writes it; any thread
    may read it."""

    __slots__ = ("_phase", "_statements", "busy_since")

    def __init__(self) -> None:
        self.busy_since = 0.0  # monotonic time at which the current run began; 0.0 without a run
        self._phase: tuple[str, float] = ("", 0.0)
        # The run to which the last SQL statements belong (its `busy_since`), how many seconds the
        # ended statements have taken, and when the present statement began (0.0 without one).
        self._statements = (0.0, 0.0, 0.0)

    def enter(self, phase: str) -> None:
        """Begin a phase in which no handler runs; "" is a phase without a name."""
        self.busy_since, self._phase = 0.0, (phase, time.monotonic() if phase else 0.0)

    def begin_statement(self) -> None:
        """Note that the run waits for an SQL statement; the name of this phase is `statement`.

        A database checks the deadline now and then, but not within one row. Meanwhile the handler
        does not count as hung, and other projects do not wait for it.
        """
        run, ended_s, _ = self._statements
        ended_s = ended_s if run == self.busy_since else 0.0
        self._statements = self.busy_since, ended_s, time.monotonic()

    def end_statement(self) -> None:
        """Note that the statement has ended."""
        run, ended_s, since = self._statements
        self._statements = run, ended_s + time.monotonic() - since, 0.0

    @property
    def since(self) -> float:
        """The start of the current run or phase (`time.monotonic`); 0.0 without either."""
        return self.busy_since or self._phase[1]

    def current(self) -> tuple[float, str, float]:
        """Return how long a handler has been running, the current phase, and its duration.

        The time of SQL statements does not count as time of the handler. Durations are in seconds;
        they are 0.0 when no handler runs or no phase is named. A phase is work outside a handler,
        such as "commit".
        """
        now, busy_since, (phase, since) = time.monotonic(), self.busy_since, self._phase
        run, ended_s, statement_since = self._statements
        if busy_since and run == busy_since:
            if statement_since:
                return 0.0, STATEMENT, now - statement_since
            return now - busy_since - ended_s, "", 0.0
        return now - busy_since if busy_since else 0.0, phase, now - since if phase else 0.0
