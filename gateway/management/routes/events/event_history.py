"""The event history: lists of events, and one event with all its details.

Source: ours; the original interface has no such routes.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from fieldbrook.core.clock import rfc3339, unix_ms
from fieldbrook.core.errors import (
    BadRequestError,
    EventNotFoundError,
    FieldError,
    PublisherNotFoundError,
)
from fieldbrook.core.model import Project
from fieldbrook.gateway.management.framework.binding import RowLimit, Sfid, Text, Timestamp
from fieldbrook.gateway.management.framework.context import ProjectStoreReader
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.events.event_rows import (
    Effect,
    EventRow,
    EventRows,
    effect_row,
)
from fieldbrook.gateway.management.routes.events.log_lines import LogLine, log_line
from fieldbrook.gateway.management.routes.events.refused_events import RefusedEvent, refused_row
from fieldbrook.gateway.management.routes.modules.traces import (
    EventCalls,
    event_calls,
    may_read_calls,
)
from fieldbrook.storage.chain.transactions import LEASED, Transaction
from fieldbrook.storage.project.history.search import EventFilter, EventPage, PlacedEvent, spans_of
from fieldbrook.storage.project.outbox import TRANSACTIONS, EffectOf

_DETAIL_ROWS = 200  # log lines, effects and refusals of one event

Outcome = Literal["ok", "failed", "unhandled", "duplicate"]
Source = Literal["http", "mqtt", "cron", "api", "chain"]


class ReadEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Filters for the history, and the page: at most `limit` events with places below `before`.

    `publisher` is a key or an id. Events must have been received from `begin` on and before `end`
    (RFC 3339).
    """

    event_id: Text = msgspec.field(name="eventID", default="")
    event_type: Text = msgspec.field(name="type", default="")
    publisher: Text = ""
    outcome: Outcome | None = None
    source: Source | None = None
    begin: Timestamp | None = None
    end: Timestamp | None = None
    before: Sfid | None = None
    limit: RowLimit = 100


class EventList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the history, newest first.

    `next` is the `before` of the following page; it is empty when no event is left. A page may
    have fewer events than `limit`, even none, and still have a `next`: one request searches a
    bounded part of the history. `keptSince` is when the oldest event of the history was handled;
    failed events may be kept longer. `newest` is the place of the newest event, whether it matches
    or not: who follows `/stream` after it misses none. `logs`, `effects` and `refusals` are those
    of `eventID`.
    """

    data: list[EventRow]
    logs: list[LogLine] | msgspec.UnsetType = msgspec.UNSET
    effects: list[Effect] | msgspec.UnsetType = msgspec.UNSET
    refusals: list[RefusedEvent] | msgspec.UnsetType = msgspec.UNSET
    following: str = msgspec.field(name="next")
    newest: str
    kept_since: str | msgspec.UnsetType = msgspec.field(name="keptSince", default=msgspec.UNSET)


class SentTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that an event has sent."""

    transaction_id: str = msgspec.field(name="transactionID")
    chain_id: int = msgspec.field(name="chainID")
    state: str
    hash: str


class EventDetails(EventRow, frozen=True, kw_only=True):
    """An event with all its details. `payload` is base64, and absent when it is not kept. `trace`
    is there while the trace of a traced event is kept, for access keys with READONLY on Wasm Log
    and on Project Config."""

    payload: str | msgspec.UnsetType = msgspec.UNSET
    trace: EventCalls | msgspec.UnsetType = msgspec.UNSET
    logs: list[LogLine]
    effects: list[Effect]
    transactions: list[SentTransaction]
    refusals: list[RefusedEvent]


async def read_events(call: Call[None, ReadEvents]) -> EventList:
    """The event history, newest first. For a single event the answer adds its log lines, the
    messages and calls it has sent, and the reasons if it was refused.

    `outcome` is `failed` when a handler failed or returned a negative code or the node could not
    handle the event, `unhandled` when no strategy matched its type, `duplicate` when it was one and
    did not run, else `ok`.
    """
    project, query = own_project(call), call.query
    wanted = _filter(call, project)
    store = await call.context.flushed_store(project.project_id)
    page = EventPage([])
    if store is not None:
        page = await call.search(lambda: store.find_events(wanted, query.before or 0, query.limit))
    rows = EventRows(call.context.reader)
    answer = EventList(
        data=[rows.row(event) for event in page.rows],
        following=str(page.following) if page.following else "",
        newest=str(page.newest),
        kept_since=rfc3339(page.kept_since) if page.kept_since else msgspec.UNSET,
    )
    if not query.event_id:
        return answer
    logs, effects = await _find_details(call, store, query.event_id, page.rows)
    return msgspec.structs.replace(
        answer,
        logs=logs,
        effects=[effect_row(effect) for effect in effects],
        refusals=await _find_refusals(call, project, query.event_id, query.limit),
    )


async def read_event(call: Call[None, None]) -> EventDetails:
    """One event by its place in the history, with its payload, its log lines, what it has sent,
    the host calls of a traced event, and the reasons if an event with its id was refused."""
    project = own_project(call)
    place = call.id("place")
    store = await call.context.flushed_store(project.project_id)
    found = await call.search(lambda: store.event_at(place)) if store else None
    if store is None or found is None:
        raise EventNotFoundError(place=place)
    record, payload = found
    event = PlacedEvent(place, record)
    logs, effects = await _find_details(call, store, record.event_id, [event])
    return EventDetails(
        **msgspec.structs.asdict(EventRows(call.context.reader).row(event)),
        payload=msgspec.UNSET if payload is None else base64.b64encode(payload).decode(),
        logs=logs,
        effects=[effect_row(effect) for effect in effects],
        transactions=[_transaction(row) for row in _find_transactions(call, project, effects)],
        refusals=await _find_refusals(call, project, record.event_id, _DETAIL_ROWS),
        trace=await _find_trace(call, store, event),
    )


def _filter(call: Call[None, ReadEvents], project: Project) -> EventFilter:
    query = call.query
    publisher_id = None
    if query.publisher:
        publisher = call.context.reader.publisher(project.project_id, query.publisher)
        if publisher is None:
            raise PublisherNotFoundError(pub_id=query.publisher)
        publisher_id = publisher.publisher_id
    wanted = EventFilter(
        query.event_id or None,
        query.event_type or None,
        publisher_id,
        query.outcome,
        query.source,
    )
    if query.begin is not None:
        wanted = wanted._replace(begin=unix_ms(query.begin))
    if query.end is not None:
        wanted = wanted._replace(end=unix_ms(query.end))
    if wanted.begin >= wanted.end:
        raise BadRequestError(FieldError("end", "must be later than begin", "query"))
    return wanted


async def _find_details(
    call: Call[Any, Any],
    store: ProjectStoreReader | None,
    event_id: str,
    events: Sequence[PlacedEvent],
) -> tuple[list[LogLine], Sequence[EffectOf]]:
    """Find the log lines and effects of the events with one id, around the times at which they
    ran."""
    if store is None:
        return [], []
    spans = spans_of(event.record for event in events)
    logs = await call.search(lambda: store.logs_of(event_id, _DETAIL_ROWS, spans))
    effects = await call.search(lambda: store.effects_of(event_id, _DETAIL_ROWS, spans))
    return [log_line(row) for row in logs], effects


async def _find_refusals(
    call: Call[Any, Any], project: Project, event_id: str, limit: int
) -> list[RefusedEvent]:
    refused, _ = await call.search(
        lambda: call.context.refused(limit, event_id=event_id, project=project.name)
    )
    return [refused_row(refusal) for refusal in refused]


async def _find_trace(
    call: Call[Any, Any], store: ProjectStoreReader, event: PlacedEvent
) -> EventCalls | msgspec.UnsetType:
    if not event.record.is_traced or not may_read_calls(call):
        return msgspec.UNSET
    trace = await call.search(lambda: store.trace_at(event.place))
    return msgspec.UNSET if trace is None else event_calls(trace)


def _find_transactions(
    call: Call[Any, Any], project: Project, effects: Sequence[EffectOf]
) -> list[Transaction]:
    """Find the transactions among the effects of an event: one lookup for each."""
    found = []
    for effect in effects:
        if not effect.kind.startswith(TRANSACTIONS):
            continue
        chain = call.context.chain_reader(int(effect.kind.removeprefix(TRANSACTIONS)))
        row = chain.transactions.with_call(bytes.fromhex(effect.target)) if chain else None
        if row is not None and row.project_id == project.project_id and row.state != LEASED:
            found.append(row)
    return found


def _transaction(row: Transaction) -> SentTransaction:
    return SentTransaction(
        transaction_id=row.name,
        chain_id=row.chain_id,
        state=row.state,
        hash=row.mined or row.last.hash,
    )


ROUTES: tuple[Route, ...] = (
    Route("GET", "/event_log/{projectName}", "ListEvents", read_events),
    Route("GET", "/event_log/{projectName}/at/{place}", "GetEvent", read_event),
)
