"""Refused events, which reached no project.

Source: ours; the original interface has no such routes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from fieldbrook.core.clock import rfc3339
from fieldbrook.gateway.management.framework.binding import RowLimit, Text
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.storage.project.refused import Refusal


class ReadRefused(msgspec.Struct, frozen=True, kw_only=True):
    """Refused events, newest first; `eventID` and `project` are optional filters."""

    event_id: Text = msgspec.field(name="eventID", default="")
    project: Annotated[str, msgspec.Meta(max_length=128)] = ""
    limit: RowLimit = 100


class RefusedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A refused event: the error's key in `error`, and the size and digest of its payload."""

    event_id: str = msgspec.field(name="eventID")
    refused_at: str = msgspec.field(name="refusedAt")
    source: str
    project: str
    publisher: str
    event_type: str = msgspec.field(name="eventType")
    error: str
    reason: str
    size: int
    sha256: str


class RefusedEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Refused events, newest first; `more` is the number of those that were only counted."""

    data: list[RefusedEvent]
    more: int


async def read_refused(call: Call[None, ReadRefused]) -> RefusedEvents:
    """Refused events, which reached no project, with the reasons. `more` is the number of
    further ones that were only counted."""
    query = call.query
    refused, more = await call.search(
        lambda: call.context.refused(
            query.limit, event_id=query.event_id or None, project=query.project or None
        )
    )
    return RefusedEvents(data=[refused_row(refusal) for refusal in refused], more=more)


def refused_row(refusal: Refusal) -> RefusedEvent:
    """Make the view of a refused event."""
    return RefusedEvent(
        event_id=refusal.event_id,
        refused_at=rfc3339(refusal.time_ms),
        source=refusal.source,
        project=refusal.project,
        publisher=refusal.publisher,
        event_type=refusal.event_type,
        error=refusal.key,
        reason=refusal.reason,
        size=refusal.size,
        sha256=refusal.digest,
    )


ROUTES: tuple[Route, ...] = (
    Route("GET", "/refused_event", "ListRefusedEvents", read_refused, auth=Auth.ADMIN),
)
