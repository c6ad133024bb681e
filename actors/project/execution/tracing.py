"""The trace of a project: for a number of events, the host calls of their handlers are kept.

A trace belongs to the running project. It ends when it has the requested number of events, when its
time is over, or when the project stops, moves or starts again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from fieldbrook.actors.wire import SOURCE_BITS, WireEvent
from fieldbrook.core import clock
from fieldbrook.storage.project.history.records import SOURCES
from fieldbrook.storage.project.history.traces import EventTrace
from fieldbrook.wasm.recording import Recorder, RecordLimits
from fieldbrook.wasm.run import Run, SqlSession

LIMITS = RecordLimits(calls=200, total_bytes=64 << 10, value_bytes=1 << 10)
"""How many host calls, and how many bytes of them, are kept for one event."""
_WAITING_BYTES = 1 << 20  # traces of more bytes may not wait for a commit: tracing pauses


class TraceOrder(NamedTuple):
    """The selection of events to trace, as in the command `wire.TRACE`.

    At most `events` events, for `seconds`. `event_type`, `publisher_id` and `source` (a name of
    `SOURCES`) select events where they are not empty or 0. `publisher` is what the client wrote
    for `publisher_id`.
    """

    events: int
    seconds: float
    event_type: str = ""
    publisher_id: int = 0
    publisher: str = ""
    source: str = ""


class Tracing:
    """A running trace, and the host calls of the events of the current batch."""

    def __init__(self, order: TraceOrder) -> None:
        self._order = order
        self._left = order.events
        self._ends_at = time.monotonic() + order.seconds
        self._until_ms = clock.now_ms() + round(order.seconds * 1_000)
        # By the `id()` of their events, which stay referenced here.
        self._kept: dict[int, tuple[WireEvent, Recorder]] = {}
        self._waiting_bytes = 0  # of all events of the batch except the last one
        self._last: Recorder | None = None

    @property
    def is_over(self) -> bool:
        """Whether no further event will be traced."""
        return self._left <= 0 or time.monotonic() >= self._ends_at

    @property
    def state(self) -> tuple[int, int, str, str, str] | None:
        """How many events are left, the end in Unix milliseconds, and the filter: type, publisher
        and source. None when the trace is over."""
        if self.is_over:
            return None
        order = self._order
        return self._left, self._until_ms, order.event_type, order.publisher, order.source

    def wants(self, event: WireEvent) -> bool:
        """Whether the host calls of an event are kept, if it runs."""
        if id(event) in self._kept:
            return True
        order = self._order
        return (
            not self.is_over
            and self._waiting_bytes < _WAITING_BYTES
            and order.event_type in ("", event[0])
            and order.publisher_id in (0, event[1])
            and order.source in ("", SOURCES.get(event[5] & SOURCE_BITS))
        )

    def first_wanted(self, events: Sequence[WireEvent], start: int, end: int) -> int:
        """Return the index of the first event from `start` on to be traced, else `end`."""
        return next((at for at in range(start, end) if self.wants(events[at])), end)

    def begin(
        self, event: WireEvent, strategy_id: int, run: Run, session: SqlSession | None
    ) -> bool:
        """Record the host calls of a run if its event is traced; return whether it is traced."""
        if not self.wants(event):
            return False
        known = self._kept.get(id(event))
        if known is None:
            self._left -= 1
            known = self._kept[id(event)] = (event, Recorder(LIMITS))
            if self._last is not None:
                self._waiting_bytes += self._last.size
            self._last = known[1]
        recorder = known[1]
        recorder.begin(run, strategy_id)
        if session is not None:
            run.sql = recorder.session(session)
        return True

    def end(self, event: WireEvent, run: Run) -> None:
        """Note the end of the run that `begin` records."""
        self._kept[id(event)][1].end(run)

    def take(self, event: WireEvent, index: int) -> EventTrace | None:
        """Remove and return the trace of an event; `index` is the event's place among the
        records."""
        kept = self._kept.pop(id(event), None)
        if kept is None:
            return None
        recorder = kept[1]
        return EventTrace(
            index,
            recorder.calls,
            recorder.omitted,
            [(strategy_id, us) for strategy_id, us, _ in recorder.runs],
            [memory_bytes for _, _, memory_bytes in recorder.runs],
        )

    def settle(self) -> None:
        """Begin another batch."""
        self._kept.clear()
        self._waiting_bytes, self._last = 0, None
