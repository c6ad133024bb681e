"""Replay of events from the history.

Source: ours; the original interface has no such routes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from fieldbrook.actors.wire import REPLAY_EVENTS
from fieldbrook.core.clock import unix_ms
from fieldbrook.core.errors import BadRequestError, FieldError, PublisherNotFoundError
from fieldbrook.core.model import Project
from fieldbrook.gateway.management.framework.binding import RowLimit, Text, Timestamp
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.storage.project.history.replays import ReplayFilter

_REPLAY_BATCH = 10  # events per command; a command has 15 s for all their handlers
_EVERYTHING = 1 << 30


class ReplayEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The events of the history to replay: received from `from` on and before `to` (RFC 3339).

    `eventType` and `publisher` (key or id) are optional filters. One call replays at most `limit`
    events, oldest first. To continue, send the `next` of the answer as `after`. With `dryRun` the
    events are counted and no handler runs.
    """

    begin: Timestamp = msgspec.field(name="from")
    end: Timestamp = msgspec.field(name="to")
    event_type: Text = msgspec.field(name="eventType", default="")
    publisher: Text = ""
    limit: RowLimit = 100
    after: Annotated[str, msgspec.Meta(max_length=20, pattern="^[0-9]*$")] = ""
    dry_run: bool = msgspec.field(name="dryRun", default=False)


class ReplayedEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a replay.

    `notReplayable` are found events whose payload is gone or whose type no longer matches a
    strategy. `next` is empty when no event is left.
    """

    found: int
    replayed: int
    failed: int
    not_replayable: int = msgspec.field(name="notReplayable")
    following: str = msgspec.field(name="next")


async def replay_events(call: Call[ReplayEvents, None]) -> ReplayedEvents:
    """Replay events of the history through all handlers, each under the id `<event id>#r<n>`.

    Only the newest payloads are kept (`replayable_bytes`). `notReplayable` counts the events
    whose payload is gone or whose type no longer matches a strategy. A handler that fails leaves
    a dead letter.
    """
    project, body = own_project(call), call.body
    store = await call.context.flushed_store(project.project_id)
    wanted = _replay_filter(call, project)
    if store is None:
        return _replayed(0, 0, 0, 0, "")
    after = int(body.after or "0")
    limit = _EVERYTHING if body.dry_run else body.limit
    found, more = await call.search(lambda: store.replayable(wanted, after, limit))
    kept = [event for event in found if event.kept]
    not_replayable, failed = len(found) - len(kept), 0
    if body.dry_run:
        return _replayed(len(found), 0, 0, not_replayable, "")
    done = 0
    for start in range(0, len(kept), _REPLAY_BATCH):
        part = kept[start : start + _REPLAY_BATCH]
        numbers = [number for event in part for number in (event.place, event.attempt)]
        for handlers, code, _ in await call.command(project.project_id, REPLAY_EVENTS, numbers):
            not_replayable += handlers == 0
            done += handlers > 0
            failed += handlers > 0 and code < 0
    following = str(found[-1].place) if found and more else ""
    return _replayed(len(found), done, failed, not_replayable, following)


def _replay_filter(call: Call[ReplayEvents, None], project: Project) -> ReplayFilter:
    body = call.body
    publisher_id = None
    if body.publisher:
        publisher = call.context.reader.publisher(project.project_id, body.publisher)
        if publisher is None:
            raise PublisherNotFoundError(pub_id=body.publisher)
        publisher_id = publisher.publisher_id
    begin, end = unix_ms(body.begin), unix_ms(body.end)
    if begin >= end:
        raise BadRequestError(FieldError("to", "must be later than from", "body"))
    return ReplayFilter(begin, end, body.event_type or None, publisher_id)


def _replayed(
    found: int, replayed: int, failed: int, not_replayable: int, following: str
) -> ReplayedEvents:
    return ReplayedEvents(
        found=found,
        replayed=replayed,
        failed=failed,
        not_replayable=not_replayable,
        following=following,
    )


ROUTES: tuple[Route, ...] = (
    Route("POST", "/event_log/{projectName}/replay", "ReplayEvents", replay_events),
)
