"""Tasks of look-ahead threads: an event with its handlers, and hosts to run them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from fieldbrook.actors.project.look_ahead.run import SpeculativeRun
from fieldbrook.actors.wire import WireEvent
from fieldbrook.wasm.run import Host


class HostCopies:
    """Copies of the host of one applet. Each is used by one thread at a time."""

    def __init__(self, original: Host) -> None:
        self.original = original
        self._free: list[Host] = []
        self._closed = False
        self._lock = threading.Lock()

    def take(self) -> Host:
        """Return a copy that no other thread uses.

        Raises:
            ModuleRefusedError: the module cannot be linked again.
        """
        with self._lock:
            if self._free:
                return self._free.pop()
        return self.original.copy()

    def give_back(self, host: Host) -> None:
        """Keep a copy for the next `take`."""
        with self._lock:
            if not self._closed:
                self._free.append(host)
                return
        host.close()

    def close(self) -> None:
        """Release the copies. Copies in use are released when they are given back."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for host in free:
            host.close()


class Step(NamedTuple):
    """One handler of an event. `scope` is the scope of the applet's keys."""

    strategy_id: int
    applet_id: int
    handler: str
    scope: bytes
    hosts: HostCopies


class Task:
    """One event that may be run before its turn, with its handlers in their order.

    When the task is `done`, `runs` has a run for each strategy that could run ahead, and `size` is
    the approximate size of the runs in bytes.
    """

    __slots__ = ("done", "event", "index", "runs", "size", "steps")

    def __init__(self, index: int, event: WireEvent, steps: Sequence[Step]) -> None:
        self.index, self.event, self.steps = index, event, steps
        self.done = False
        self.runs: dict[int, SpeculativeRun] = {}
        self.size = 0

    @property
    def publisher_id(self) -> int:
        """The event's publisher."""
        return self.event[1]
