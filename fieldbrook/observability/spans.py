"""Spans of traced events, for OpenTelemetry: where they begin and end, and the exporter's queue.

In: the work of a node's processes on traced events.
Out: spans, which a thread of each process sends to a collector (`span_export.py`).

A traced event has a context, which is passed through the node: after the items of its `WireEvent`,
and with the effects of its handlers. Without the setting `otlp_endpoint`, `here` is None: nothing
of OpenTelemetry is imported, and an event costs one attribute look-up in each process.
"""

from __future__ import annotations

import collections
import random
import secrets
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from fieldbrook.core.settings import Settings
from fieldbrook.observability import metrics
from fieldbrook.observability.span import SPAN_BYTES, TRACE_BYTES, Context, Span

Attributes = Mapping[str, str | int | bool]

INTERNAL, SERVER, CLIENT, PRODUCER = "INTERNAL", "SERVER", "CLIENT", "PRODUCER"
"""Kinds of spans, as OpenTelemetry names them."""
RECEIVE, HANDLE, COMMIT = "gateway.receive", "project.handle", "journal.commit"
PUBLISH, CALL, SUBMIT = "outbox.publish", "outbox.call", "transaction.submit"

_EXPORTED_TOGETHER = 512
_FLUSH_S = 1.0
_STOP_S = 2.0
_PENDING_LIMIT = 4_096
_HEX = frozenset("0123456789abcdef")


class Parent(NamedTuple):
    """The span of a sender, from its header `traceparent`."""

    trace: bytes
    span: bytes
    sampled: bool


def read_traceparent(value: str) -> Parent | None:
    """Read the header `traceparent`; return None if it is invalid, because then it is ignored.

    Source: W3C Trace Context, 3.2. A later version may have more fields.
    """
    parts = value.strip(" \t").split("-")
    if [len(part) for part in parts[:4]] != [2, 32, 16, 2] or not _HEX.issuperset(
        "".join(parts[:4])
    ):
        return None
    version, trace, span, flags = parts[:4]
    if version == "ff" or (version == "00" and len(parts) > 4):
        return None
    if not (trace.strip("0") and span.strip("0")):
        return None
    return Parent(bytes.fromhex(trace), bytes.fromhex(span), bool(int(flags, 16) & 1))


def child_of(context: Context) -> Context:
    """Make the context of a new span below another one."""
    return context[:TRACE_BYTES] + secrets.token_bytes(SPAN_BYTES)


class Spans:
    """The spans of one process.

    Attributes:
        parent: the sender's span of the request that is being accepted.
    """

    def __init__(self, ratio: float, limit: int) -> None:
        """Start with an empty queue.

        Args:
            ratio: the share of events without `traceparent` that are traced.
            limit: the most spans that wait for the exporter.
        """
        self.parent: Parent | None = None
        self._ratio, self._limit = ratio, limit
        self._queue: collections.deque[Span] = collections.deque()
        # The row of the process, because threads that work for a project have the project's row.
        self._row = metrics.here.row
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def begin(self) -> tuple[Context, bytes] | None:
        """Decide whether an event is traced.

        Returns:
            The context of its first span and the id of that span's parent (b"" without one), or
            None.
        """
        parent = self.parent
        if parent is not None:
            if not parent.sampled:
                return None
            return child_of(parent.trace), parent.span
        if self._ratio < 1 and random.random() >= self._ratio:  # noqa: S311 - not a secret
            return None
        return secrets.token_bytes(TRACE_BYTES + SPAN_BYTES), b""

    def add(self, span: Span) -> None:
        """Queue a span for the exporter, without waiting; beyond the limit drop and count it."""
        queue = self._queue
        if len(queue) >= self._limit:
            self._row[metrics.SPANS["full"]] += 1
            return
        queue.append(span)
        if len(queue) == _EXPORTED_TOGETHER:
            self._wake.set()

    def take(self) -> list[Span]:
        """Remove the oldest spans from the queue, as many as are exported together, and return
        them."""
        queue = self._queue
        return [queue.popleft() for _ in range(min(len(queue), _EXPORTED_TOGETHER))]

    # ---------------------------------------------------------------- the exporter's thread

    def export_to(self, settings: Settings, part: str) -> None:
        """Start the thread that exports; call this after the fork."""
        self._thread = threading.Thread(
            target=self._export, args=(settings, part), name="spans", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Export the queued spans, for two seconds at most."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def _export(self, settings: Settings, part: str) -> None:
        from fieldbrook.observability.span_export import Exporter

        exporter = Exporter(settings, part)
        while True:
            if not self._stopping:
                self._wake.wait(_FLUSH_S)
                self._wake.clear()
            while spans := self.take():
                outcome = "exported" if exporter.export(spans) else "failed"
                self._row[metrics.SPANS[outcome]] += len(spans)
            if self._stopping:
                return


here: Spans | None = None
"""The spans of this process; None unless `start` was called."""


def start(settings: Settings, part: str) -> None:
    """Trace events in this process from now on, if the settings name a collector."""
    global here  # noqa: PLW0603 - one per process, like its row of metrics
    if settings.otlp_endpoint:
        here = Spans(settings.trace_ratio, settings.otlp_queue_spans)
        here.export_to(settings, part)


def stop() -> None:
    """Export the queued spans before this process ends."""
    if here is not None:
        here.stop()


class Joined:
    """Spans whose place in a trace and whose end are reported separately, in any order, by a key.

    The second report makes the span. The oldest single reports are dropped, because most work
    belongs to events that are not traced.
    """

    def __init__(self) -> None:
        self._contexts: dict[object, Context] = {}
        self._works: dict[object, tuple[str, str, int, int, Attributes]] = {}

    def place(self, key: object, context: Context) -> None:
        """Report that the span is a child of `context`."""
        work = self._works.pop(key, None)
        if work is None:
            _remember(self._contexts, key, context)
        else:
            _add(context, *work)

    def done(self, key: object, name: str, kind: str, began_ns: int, about: Attributes) -> None:
        """Report that the work of the span has ended now."""
        work = name, kind, began_ns, time.time_ns(), about
        context = self._contexts.pop(key, None)
        if context is None:
            _remember(self._works, key, work)
        else:
            _add(context, *work)


_T = TypeVar("_T")


def _remember(halves: dict[object, _T], key: object, half: _T) -> None:
    if len(halves) >= _PENDING_LIMIT:
        del halves[next(iter(halves))]
    halves[key] = half


def _add(
    parent: Context, name: str, kind: str, began_ns: int, ended_ns: int, about: Attributes
) -> None:
    if here is not None:
        above = parent[TRACE_BYTES:]
        here.add(Span(name, kind, child_of(parent), above, began_ns, ended_ns, about))


def end(
    name: str,
    kind: str,
    parent: Context,
    began_ns: int,
    attributes: Attributes,
    error: str = "",
) -> None:
    """Queue a child span of `parent` that ends now."""
    if here is not None:
        own, above = child_of(parent), parent[TRACE_BYTES:]
        here.add(Span(name, kind, own, above, began_ns, time.time_ns(), attributes, error))
