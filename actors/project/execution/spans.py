"""Spans of traced events in a project: each handler, and the commit of its batch.

A project creates these objects only if the node sends spans; otherwise they cost nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from fieldbrook.actors.project.execution.runner import HandlerRunner
from fieldbrook.actors.project.routing import Target
from fieldbrook.actors.wire import EventResult, HandlerResult, Requester, WireEvent, context_of
from fieldbrook.observability.span import TRACE_BYTES, Context, Span
from fieldbrook.observability.spans import COMMIT, HANDLE, INTERNAL, Attributes, Spans, child_of
from fieldbrook.storage.project.deduplication import Outcome

Batch = Iterable[tuple[Requester, list[EventResult], Sequence[WireEvent], int]]
"""As `commit.Batch`."""


class HandlerSpans:
    """Runs handlers as the `HandlerRunner` does, with a span for each traced event."""

    def __init__(self, spans: Spans, project_id: int, runner: HandlerRunner) -> None:
        self._spans, self._runner = spans, runner
        self._project = str(project_id)

    def run(self, target: Target, event: WireEvent) -> HandlerResult:
        """See `HandlerRunner.run`."""
        parent = context_of(event)
        if not parent:
            return self._runner.run(target, event)
        context, began_ns = child_of(parent), time.time_ns()
        self._runner.contexts[id(event)] = context  # for the messages that the handler sends
        try:
            result = self._runner.run(target, event)
        except Exception as error:
            self._end(target, (context, parent), began_ns, -1, str(error))
            raise
        finally:
            self._runner.contexts.clear()
        self._end(target, (context, parent), began_ns, result[1], result[2])
        return result

    def run_shared(self, target: Target, events: Sequence[WireEvent]) -> Sequence[Outcome]:
        """See `HandlerRunner.run_shared`; each span has the duration of the whole batch of runs."""
        parents = {id(event): parent for event in events if (parent := context_of(event))}
        contexts = {key: child_of(parent) for key, parent in parents.items()}
        began_ns = time.time_ns()
        self._runner.contexts |= contexts
        try:
            outcomes = self._runner.run_shared(target, events)
        finally:
            self._runner.contexts.clear()
        for event, outcome in zip(events, outcomes, strict=False):
            if id(event) in parents:
                both = contexts[id(event)], parents[id(event)]
                _, code, reason = outcome[0]
                self._end(target, both, began_ns, code, reason, shared=len(outcomes))
        return outcomes

    def _end(
        self,
        target: Target,
        contexts: tuple[Context, Context],
        began_ns: int,
        code: int,
        reason: str,
        shared: int = 1,
    ) -> None:
        attributes: Attributes = {
            "fieldbrook.project.id": self._project,
            "fieldbrook.applet.id": str(target.applet_id),
            "fieldbrook.applet.name": target.applet_name,
            "fieldbrook.applet.version": target.version,
            "fieldbrook.handler": target.handler,
            "fieldbrook.strategy.id": str(target.strategy_id),
            "fieldbrook.code": code,
            "fieldbrook.events_in_instance": shared,
        }
        own, parent = contexts
        above, now = parent[TRACE_BYTES:], time.time_ns()
        self._spans.add(Span(HANDLE, INTERNAL, own, above, began_ns, now, attributes, reason))


class CommitSpans:
    """Makes one span for each traced event of a batch; all of them have the times of the commit."""

    def __init__(self, spans: Spans, project_id: int) -> None:
        self._spans = spans
        self._project = str(project_id)
        self._parents: list[Context] = []
        self._events = self._began_ns = 0
        self.error = ""  # why the batch could not be stored

    def begin(self, batch: Batch) -> None:
        """Begin the spans of a batch."""
        events = [
            event
            for _, results, events, first in batch
            for event in events[first : first + len(results)]
        ]
        self._parents = [parent for event in events if (parent := context_of(event))]
        self._events, self._began_ns, self.error = len(events), time.time_ns(), ""

    def end(self) -> None:
        """End the spans: the batch is in the journal, or was refused."""
        now = time.time_ns()
        attributes: Attributes = {
            "fieldbrook.project.id": self._project,
            "fieldbrook.batch.events": self._events,
        }
        for parent in self._parents:
            above = parent[TRACE_BYTES:]
            own = child_of(parent)
            self._spans.add(
                Span(COMMIT, INTERNAL, own, above, self._began_ns, now, attributes, self.error)
            )
        self._parents = []
