"""The simulated machine: a clock, a queue of future steps, and processes that can die at any point.

One thread runs everything. A seed decides every delay, so a seed always gives the same run.
"""

from __future__ import annotations

import collections
import heapq
import random
from collections.abc import Callable
from typing import Any

BOOT_S = 1_000.0  # the monotonic clock at the start
BOOT_MS = 1_700_000_000_000  # the wall clock at the start, Unix ms
STEPS_LIMIT = 100_000  # in a run; most runs take 5,000
LOOK_S = 0.01
TRACED = 4_000  # steps whose trace is kept
_FIRST_PID = 1_000_000  # above every pid of the real machine
_OVERDUE = float("-inf")


class CrashError(BaseException):
    """The current process is killed here. No `except Exception` of the node may catch it."""


class UnexpectedError(Exception):
    """The node did what it must never do, such as an exception that nobody has injected."""


class Process:
    """A process of the simulated node. After its death nothing of it runs any more."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name
        self.pid = _FIRST_PID + len(machine.processes)
        self.alive = True
        self.exit_code: int | None = None
        self.crash_after: int | None = None  # the number of points until it is killed
        self.held: list[Callable[[], object]] | None = None  # its steps while it is stopped
        self.unread: list[Callable[[], object]] | None = None  # postponed reads
        self.at_death: list[Callable[[], None]] = []
        machine.processes.append(self)

    def freeze(self, seconds: float) -> None:
        """Stop the process for a while."""
        if self.held is None:
            self.machine.trace("%s stands still for %.1f s", self.name, seconds)
            self.held = []
            self.machine.at(seconds, None, self.go_on)

    def go_on(self) -> None:
        """Continue a stopped process."""
        held, self.held = self.held or [], None
        for call in held:
            self.machine.at(_OVERDUE, self, call)

    def stop_reading(self, seconds: float) -> None:
        """Make the process read from no socket for a while; everything else continues."""
        if self.unread is None:
            self.machine.trace("%s reads nothing for %.1f s", self.name, seconds)
            self.unread = []
            self.machine.at(seconds, self, self.read_again)

    def read_again(self) -> None:
        """Read the data that have arrived meanwhile."""
        unread, self.unread = self.unread or [], None
        for call in unread:
            self.machine.at(_OVERDUE, self, call)

    def read(self, call: Callable[[], object]) -> None:
        """Let the process read what has arrived, now or later."""
        if self.unread is None:
            call()
        else:
            self.unread.append(call)

    def kill(self, why: str) -> None:
        """End the process at once."""
        if self.alive:
            self.machine.trace("%s dies: %s", self.name, why)
            self.alive = False
            for call in self.at_death:
                call()


class Machine:
    """Time, chance, processes, and the trace of what happened."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = BOOT_S
        self.processes: list[Process] = []
        self.steps_taken = 0
        self.current: Process | None = None
        self.steps: collections.deque[tuple[float, str, tuple[Any, ...]]] = collections.deque(
            maxlen=TRACED
        )
        self.failure: Exception | None = None
        self.at_crash: Callable[[Process], Callable[[], None]] = lambda _process: _nothing
        self._after_crash: Callable[[], None] = _nothing
        self.on_trace: Callable[[str], None] | None = None
        self.worst_delay_s = 0.02
        self._queue: list[tuple[float, int, Process | None, Callable[[], object]]] = []
        self._number = 0

    # ---------------------------------------------------------------- clocks

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return BOOT_MS * 1_000_000 + int((self.now - BOOT_S) * 1e9)

    def spend(self, seconds: float) -> None:
        """Let the current step take some time."""
        self.now += seconds

    def delay(self) -> float:
        """Return the delay of a message: mostly short, sometimes long."""
        chance = self.random.random()
        if chance < 0.9:
            return chance * 0.0005
        return self.random.random() * self.worst_delay_s

    # ---------------------------------------------------------------- steps

    def at(self, delay_s: float, process: Process | None, call: Callable[[], object]) -> None:
        """Schedule `call` after a delay, unless the process is dead by then.

        `_OVERDUE` is before all that waits, in the order of such calls.
        """
        self._number += 1
        heapq.heappush(self._queue, (self.now + delay_s, self._number, process, call))

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Take steps until a condition holds; return False if it does not within `limit_s`.

        The condition is checked every `LOOK_S`.
        """
        end, look = self.now + limit_s, self.now
        queue = self._queue
        while True:
            if self.now >= look:
                if until():
                    return True
                look = self.now + LOOK_S
            self.steps_taken += 1
            if self.steps_taken > STEPS_LIMIT:
                raise UnexpectedError(f"it takes more than {STEPS_LIMIT} steps")
            if not queue or queue[0][0] > end:
                self.now = end
                return False
            when, _, process, call = heapq.heappop(queue)
            if when > self.now:
                self.now = when
            if process is None or process.held is None:
                self._step(process, call)
            else:
                process.held.append(call)
            if self.failure is not None:
                raise self.failure

    def _step(self, process: Process | None, call: Callable[[], object]) -> None:
        if process is not None and not process.alive:
            return
        self.current = process
        try:
            call()
        except CrashError as crash:
            assert process is not None
            self._after_crash()
            process.kill(str(crash))
        finally:
            self.current = None

    def pass_point(self, point: str) -> None:
        """A place at which the current process may be killed."""
        process = self.current
        if process is not None and process.crash_after is not None:
            process.crash_after -= 1
            if process.crash_after < 0:
                self.crash(point)

    def crash(self, point: str) -> None:
        """Kill the current process here."""
        assert self.current is not None
        # The exception runs `finally` blocks, which a killed process would not run.
        self._after_crash = self.at_crash(self.current)
        raise CrashError(f"at {point}")

    # ---------------------------------------------------------------- what is told

    def trace(self, text: str, *values: Any) -> None:
        """Record a step; its text is made when it is read."""
        self.steps.append((self.now, text, values))
        if self.on_trace is not None:
            self.on_trace(line_of(self.steps[-1]))

    def fail(self, error: Exception) -> None:
        """End the run with this error after the current step."""
        if self.failure is None:
            self.failure = error


def _nothing() -> None: ...


def line_of(step: tuple[float, str, tuple[Any, ...]]) -> str:
    """Return one line of the trace."""
    when, text, values = step
    return f"{when - BOOT_S:10.4f}  {text % values if values else text}"
