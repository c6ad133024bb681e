"""The event history, refused events, and dead letters: reading, replaying and discarding them.

Source: ours; the original interface has no such routes.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any

import msgspec

from fieldbrook.actors.wire import DISCARD, REPLAY, REPLAY_EVENTS
from fieldbrook.core.clock import rfc3339
from fieldbrook.core.errors import (
    BadRequestError,
    DeadLetterNotFoundError,
    FieldError,
    PublisherNotFoundError,
)
from fieldbrook.core.model import Project
from fieldbrook.gateway.management.framework.binding import RowLimit, Sfid, Text, Timestamp
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.gateway.management.framework.views import Json, log_row_json
from fieldbrook.storage.project.dead_letters import NumberedDeadLetter
from fieldbrook.storage.project.history import EventRecord, RecordedTarget, ReplayFilter
from fieldbrook.storage.project.outbox import EffectOf
from fieldbrook.storage.project.refused import Refusal

_IDS_LIMIT = 100
_LOG_ROWS = 200
_REPLAY_BATCH = 10  # events per command; a command has 15 s for all their handlers
_EVERYTHING = 1 << 30


class ReadEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The last events of the history, or one event with all its details."""

    event_id: Text = msgspec.field(name="eventID", default="")
    limit: RowLimit = 100


class ReadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """A page of dead letters, newest first, with numbers below `before`."""

    before: Sfid | None = None
    limit: RowLimit = 100


class ReplayLetters(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters to replay, 1 to 100."""

    letter_ids: list[Sfid] = msgspec.field(name="letterIDs")


class DiscardLetters(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters to discard, 1 to 100."""

    letter_ids: list[Sfid] = msgspec.field(name="letterID")


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


class ReadRefused(msgspec.Struct, frozen=True, kw_only=True):
    """Refused events, newest first; `eventID` and `project` are optional filters."""

    event_id: Text = msgspec.field(name="eventID", default="")
    project: Annotated[str, msgspec.Meta(max_length=128)] = ""
    limit: RowLimit = 100


async def read_events(call: Call[None, ReadEvents]) -> Json:
    """The event history, newest first. For a single event the answer adds its log lines, the
    messages and calls it has sent, and the reasons if it was refused."""
    project = own_project(call)
    store = await call.context.flushed_store(project.project_id)
    wanted, limit = call.query.event_id, call.query.limit
    run = call.workers.searches.run
    records = await run(lambda: store.events(wanted or None, limit)) if store else ()
    names = _Names(call)
    answer: Json = {"data": [_record_json(record, names) for record in records]}
    if wanted:
        rows = await run(lambda: store.logs_of(wanted, _LOG_ROWS)) if store else ()
        sent = await run(lambda: store.effects_of(wanted, _LOG_ROWS)) if store else ()
        answer["logs"] = [log_row_json(row) for row in rows]
        answer["effects"] = [_effect_json(effect) for effect in sent]
        refused, _ = await run(
            lambda: call.context.refused(limit, event_id=wanted, project=project.name)
        )
        answer["refusals"] = [_refusal_json(refusal) for refusal in refused]
    return answer


async def read_refused(call: Call[None, ReadRefused]) -> Json:
    """Refused events, which reached no project, with the reasons. `more` is the number of
    further ones that were only counted."""
    query = call.query
    refused, more = await call.workers.searches.run(
        lambda: call.context.refused(
            query.limit, event_id=query.event_id or None, project=query.project or None
        )
    )
    return {"data": [_refusal_json(refusal) for refusal in refused], "more": more}


async def replay_events(call: Call[ReplayEvents, None]) -> Json:
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
    found, more = await call.workers.searches.run(lambda: store.replayable(wanted, after, limit))
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
    begin, end = (round(moment.timestamp() * 1000) for moment in (body.begin, body.end))
    if begin >= end:
        raise BadRequestError(FieldError("to", "must be later than from", "body"))
    return ReplayFilter(begin, end, body.event_type or None, publisher_id)


def _replayed(found: int, replayed: int, failed: int, not_replayable: int, following: str) -> Json:
    return {
        "found": found,
        "replayed": replayed,
        "failed": failed,
        "notReplayable": not_replayable,
        "next": following,
    }


async def read_letters(call: Call[None, ReadLetters]) -> Json:
    """Dead letters without their payloads."""
    store = call.context.store_reader(own_project(call).project_id)
    if store is None:
        return {"data": [], "total": 0}
    letters, total = store.dead_letters(call.query.before or None, call.query.limit)
    return {"data": [_letter_json(letter) for letter in letters], "total": total}


async def read_letter(call: Call[None, None]) -> Json:
    """One dead letter with its payload."""
    store = call.context.store_reader(own_project(call).project_id)
    number = call.id("letterID")
    letter = store.dead_letter(number) if store else None
    if letter is None:
        raise DeadLetterNotFoundError(letter=number)
    payload = base64.b64encode(letter.payload).decode()
    return {**_letter_json(NumberedDeadLetter(number, letter)), "payload": payload}


async def replay_letters(call: Call[ReplayLetters, None]) -> Json:
    """Replay dead letters through their handlers, in the given order.

    Each replayed letter is removed. If its handler fails again, it leaves a new dead letter.
    """
    numbers = _require_ids(call.body.letter_ids, "letterIDs")
    outcome = await call.command(own_project(call).project_id, REPLAY, numbers)
    return {
        "results": [
            {"letterID": str(number), "instanceID": str(instance), "code": code, "errMsg": error}
            for number, (instance, code, error) in zip(numbers, outcome, strict=True)
        ]
    }


async def discard_letters(call: Call[None, DiscardLetters]) -> None:
    """Discard dead letters; ids that the project does not have are ignored."""
    numbers = _require_ids(call.query.letter_ids, "letterID")
    await call.command(own_project(call).project_id, DISCARD, numbers)


def _require_ids(numbers: list[Sfid], field: str) -> list[int]:
    if not 1 <= len(numbers) <= _IDS_LIMIT:
        reason = f"between 1 and {_IDS_LIMIT} ids, got {len(numbers)}"
        raise BadRequestError(FieldError(field, reason, "body"))
    return list(numbers)


def _letter_json(numbered: NumberedDeadLetter) -> Json:
    letter = numbered.letter
    return {
        "letterID": str(numbered.number),
        "eventID": letter.event_id,
        "eventType": letter.event_type,
        "publisherID": str(letter.publisher_id),
        "appletName": letter.applet_name,
        "strategyID": str(letter.strategy_id),
        "handler": letter.handler,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "size": len(letter.payload),
        "receivedAt": rfc3339(letter.received_at),
        "failedAt": rfc3339(letter.time_ms),
    }


class _Names:
    """The current names of applets and handlers; removed ones have no names, only ids."""

    def __init__(self, call: Call[Any, Any]) -> None:
        self._reader = call.context.reader
        self._known: dict[int, Json] = {}

    def find(self, target: RecordedTarget) -> Json:
        """The names for one route of an event to a handler."""
        known = self._known.get(target.strategy_id)
        if known is None:
            strategy = self._reader.strategy(target.strategy_id)
            applet = self._reader.applet(target.applet_id)
            known = self._known[target.strategy_id] = {
                **({"handler": strategy.handler} if strategy else {}),
                **({"appletName": applet.name} if applet else {}),
            }
        return known


def _record_json(record: EventRecord, names: _Names) -> Json:
    known = len(record.targets) == len(record.results)
    targets = (
        [_target_json(target, names) for target in record.targets]
        if known
        else [{}] * len(record.results)
    )
    return {
        "eventID": record.event_id,
        "eventType": record.event_type,
        "source": record.source,
        "publisherID": str(record.publisher_id),
        "size": record.size,
        "receivedAt": rfc3339(record.received_at),
        "handledAt": rfc3339(record.handled_at),
        "again": record.is_duplicate,
        "results": [
            {
                "instanceID": str(part.instance_id),
                "code": part.code,
                "errMsg": part.reason,
                **target,
            }
            for part, target in zip(record.results, targets, strict=True)
        ],
        **({"error": record.refusal} if record.refusal else {}),
    }


def _target_json(target: RecordedTarget, names: _Names) -> Json:
    return {
        "strategyID": str(target.strategy_id),
        "appletID": str(target.applet_id),
        "appletVersion": target.version,
        **names.find(target),
    }


def _effect_json(effect: EffectOf) -> Json:
    state = "refused" if effect.refused else "delivered" if effect.done_ms else "waiting"
    return {
        "kind": effect.kind,
        "target": effect.target,
        "size": effect.size,
        "state": state,
        **({"at": rfc3339(effect.done_ms)} if effect.done_ms else {}),
        **({"reason": effect.refused} if effect.refused else {}),
    }


def _refusal_json(refusal: Refusal) -> Json:
    return {
        "eventID": refusal.event_id,
        "refusedAt": rfc3339(refusal.time_ms),
        "source": refusal.source,
        "project": refusal.project,
        "publisher": refusal.publisher,
        "eventType": refusal.event_type,
        "error": refusal.key,
        "reason": refusal.reason,
        "size": refusal.size,
        "sha256": refusal.digest,
    }


ROUTES: tuple[Route, ...] = (
    Route("GET", "/event_log/{projectName}", "ListEvents", read_events),
    Route("POST", "/event_log/{projectName}/replay", "ReplayEvents", replay_events),
    Route("GET", "/refused_event", "ListRefusedEvents", read_refused, auth=Auth.ADMIN),
    Route("GET", "/dead_letter/{projectName}", "ListDeadLetters", read_letters),
    Route("GET", "/dead_letter/{projectName}/{letterID}", "GetDeadLetter", read_letter),
    Route("POST", "/dead_letter/{projectName}/replay", "ReplayDeadLetters", replay_letters),
    Route("DELETE", "/dead_letter/{projectName}", "DiscardDeadLetters", discard_letters),
)
