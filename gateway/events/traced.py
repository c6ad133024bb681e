"""Events over HTTP that continue the trace of their sender: the header `traceparent`."""

from __future__ import annotations

from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.events.request import NO_META, Meta
from fieldbrook.gateway.replies import Answer
from fieldbrook.observability import spans


class TracedEventService(EventService):
    """Replaces the `EventService` if events are traced."""

    def accept(self, project_name: str, body: bytes, answer: Answer, meta: Meta = NO_META) -> None:
        """See `EventService.accept`; spans of events in this call are children of the sender's
        span."""
        here = spans.here
        if here is None or not meta.traceparent:
            super().accept(project_name, body, answer, meta)
            return
        here.parent = spans.read_traceparent(meta.traceparent)
        rest = meta._replace(traceparent="")
        try:
            super().accept(project_name, body, answer, NO_META if rest == NO_META else rest)
        finally:
            here.parent = None
