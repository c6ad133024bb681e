"""The first span of a traced event: from its arrival at a gateway to its answer."""

from __future__ import annotations

import time

from fieldbrook.actors.wire import (
    BY_API,
    BY_CHAIN,
    BY_CRON,
    BY_MQTT,
    SOURCE_BITS,
    WireEvent,
    with_context,
)
from fieldbrook.core.errors import NodeError
from fieldbrook.gateway.links.pending_event import Outcome, Settle, StoredResults
from fieldbrook.observability.span import TRACE_BYTES, Span
from fieldbrook.observability.spans import RECEIVE, SERVER, Spans

_SOURCES = {0: "http", BY_MQTT: "mqtt", BY_CRON: "cron", BY_API: "api", BY_CHAIN: "chain"}


def traced(
    spans: Spans, project_id: int, event: WireEvent, settle: Settle
) -> tuple[WireEvent, Settle]:
    """Begin the span of an event, if the event is traced.

    Returns:
        The event with the context of its span, and a `settle` that ends the span. For an event that
        is not traced, both are unchanged. Commands of the node are not traced.
    """
    begun = spans.begin() if event[1] >= 0 else None
    if begun is None:
        return event, settle
    context, parent = begun
    began_ns = time.time_ns()

    def settled(outcome: Outcome) -> None:
        error = ""
        attributes: dict[str, str | int | bool] = {
            "fieldbrook.project.id": str(project_id),
            "fieldbrook.publisher.id": str(event[1]),
            "fieldbrook.event.id": event[2],
            "fieldbrook.event.type": event[0],
            "fieldbrook.event.source": _SOURCES.get(event[5] & SOURCE_BITS, "other"),
            "fieldbrook.event.size": len(event[3]),
        }
        if isinstance(outcome, NodeError):
            attributes["error.type"], error = outcome.key, outcome.text()
        else:
            attributes["fieldbrook.handlers"] = len(outcome)
            attributes["fieldbrook.repeated"] = type(outcome) is StoredResults
        ended_ns = time.time_ns()
        spans.add(Span(RECEIVE, SERVER, context, parent, began_ns, ended_ns, attributes, error))
        settle(outcome)

    assert len(context) > TRACE_BYTES
    return with_context(event, context), settled
