"""Read the applet log and the applet metrics of a project."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Any

import msgspec

from fieldbrook.core.clock import rfc3339, unix_ms
from fieldbrook.core.errors import BadRequestError, FieldError
from fieldbrook.gateway import replies
from fieldbrook.gateway.management.framework.binding import RowLimit, Sfid, Text, Timestamp
from fieldbrook.gateway.management.framework.context import ProjectStoreReader
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route, Stream
from fieldbrook.gateway.management.live.caller_rights import (
    current_account,
    may_read_project,
    time_left_s,
)
from fieldbrook.gateway.management.routes.events.log_lines import (
    Level,
    LogLine,
    level_number,
    log_line,
)
from fieldbrook.storage.lmdb.rows import Numbered
from fieldbrook.storage.project.log_search import LogFilter, LogPage
from fieldbrook.storage.project.rows import MetricRow, NumberedRow

_POLL_S = 0.25
_SILENCE_S = 15.0  # after this time without rows, a comment keeps the connection alive
_SEQUENCE_LIMIT = (1 << 63) - 1
_ANY_ROW = LogFilter()


class ReadLog(msgspec.Struct, frozen=True, kw_only=True):
    """Rows with a sequence above `after`, oldest first; -20 gives the last 20."""

    after: Annotated[int, msgspec.Meta(ge=-1_000, le=_SEQUENCE_LIMIT)] = 0
    limit: RowLimit = 100


class SearchLog(ReadLog, frozen=True, kw_only=True):
    """Filters for the log. With `follow`, new rows are sent as they are written, as server-sent
    events.

    `level` selects rows that are at least as severe, `contains` those with this text in any
    case. Times are RFC 3339: at or after `begin`, before `end`. With `before` the rows come newest
    first, with sequences below it; `before=0` begins with the newest.
    """

    follow: bool = False
    before: Sfid | None = None
    level: Level | None = None
    contains: Text = ""
    event_id: Text = msgspec.field(name="eventID", default="")
    instance_id: Sfid | None = msgspec.field(name="instanceID", default=None)
    begin: Timestamp | None = None
    end: Timestamp | None = None


class LogPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the applet log.

    `next` is the `after` of the following request, or its `before` if the request had one; it is
    empty when nothing older is left. A part may have fewer rows than `limit`, even none, before
    the end: one request searches a bounded part of the log. `newest` is there if the request had a
    `before`: the sequence of the newest row, whether it matches or not. Who follows `/stream`
    after it misses none.
    """

    data: list[LogLine]
    following: str = msgspec.field(name="next")
    newest: str | msgspec.UnsetType = msgspec.UNSET


async def read_log(call: Call[None, SearchLog]) -> LogPart | Stream:
    """A part of the applet log; `next` is the `after` of the following request, or its `before`
    if there was one. With `follow` each row is a server-sent event whose id is the sequence;
    `Last-Event-ID` resumes after it."""
    project, query = own_project(call), call.query
    wanted = _filter(query)
    if query.follow:
        if query.before is not None:
            raise BadRequestError(FieldError("before", "cannot be given with follow", "query"))
        chunks = _follow(call, project.project_id, _start_sequence(call), wanted)
        return Stream(chunks, call.account)
    store = await call.context.flushed_store(project.project_id)
    if store is None:
        page = LogPage([], max(query.after, 0) if query.before is None else 0)
    elif query.before is None and wanted == _ANY_ROW:
        rows = await call.search(partial(store.logs, query.after, query.limit))
        page = LogPage([*rows], rows[-1].sequence if rows else max(query.after, 0))
    else:
        page = await call.search(lambda: _search(store, query, wanted))
    following = "" if query.before is not None and not page.following else str(page.following)
    return LogPart(
        data=[log_line(row.row, row.sequence) for row in page.rows],
        following=following,
        newest=msgspec.UNSET if query.before is None else str(page.newest),
    )


def _search(store: ProjectStoreReader, query: SearchLog, wanted: LogFilter) -> LogPage:
    if query.before is not None:
        return store.find_logs_before(wanted, query.before, query.limit)
    if query.after >= 0:
        return store.find_logs_after(wanted, query.after, query.limit)
    newest = store.logs(-1, 1)
    if not newest:
        return LogPage([], 0)
    # A client continues after the newest row, whether it matches or not.
    last = newest[-1].sequence
    rows = store.find_logs_before(wanted, last + 1, min(-query.after, query.limit)).rows
    return LogPage(rows[::-1], last)


def _filter(query: SearchLog) -> LogFilter:
    wanted = LogFilter(
        level=None if query.level is None else level_number(query.level),
        contains=query.contains or None,
        event_id=query.event_id or None,
        instance_id=query.instance_id or None,
    )
    if query.begin is not None:
        wanted = wanted._replace(begin=unix_ms(query.begin))
    if query.end is not None:
        wanted = wanted._replace(end=unix_ms(query.end))
    if wanted.begin >= wanted.end:
        raise BadRequestError(FieldError("end", "must be later than begin", "query"))
    return wanted


class SubmittedMetric(msgspec.Struct, frozen=True, kw_only=True):
    """JSON that an applet submitted, in `value`."""

    sequence: str
    time: str
    applet_name: str = msgspec.field(name="appletName")
    instance_id: str = msgspec.field(name="instanceID")
    event_id: str = msgspec.field(name="eventID")
    value: msgspec.Raw


class MetricPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the metrics; `next` is the `after` of the following request."""

    data: list[SubmittedMetric]
    following: str = msgspec.field(name="next")


async def read_metrics(call: Call[None, ReadLog]) -> MetricPart:
    """A part of the metrics that applets submitted, with the paging of the applet log: at most
    4 MiB or one row."""
    store, query = await call.context.flushed_store(own_project(call).project_id), call.query

    def read() -> MetricPart:
        rows = store.metrics(query.after, query.limit) if store else ()
        following = rows[-1].sequence if rows else max(query.after, 0)
        return MetricPart(data=[_metric(row) for row in rows], following=str(following))

    return await call.search(read)  # a row may have 64 KiB


def _start_sequence(call: Call[None, SearchLog]) -> int:
    """Return the sequence to start after: the `Last-Event-ID` of a client that reconnects, or
    `after`."""
    seen = call.last_event_id
    if seen.isascii() and seen.isdecimal() and int(seen) <= _SEQUENCE_LIMIT:
        return int(seen)
    return call.query.after


async def _follow(
    call: Call[None, SearchLog], project_id: int, after: int, wanted: LogFilter
) -> AsyncGenerator[bytes, None]:
    """Yield new rows until the caller loses access, or its token expires; see `time_left_s`.

    The time limit makes a long-running client reconnect and authenticate again.
    """
    reader = call.context.reader
    version = reader.version()
    assert call.caller is not None
    heard = time.monotonic()
    until = heard + time_left_s(call.context, call.caller)
    while time.monotonic() < until:
        if reader.version() != version:
            version = reader.version()
            if not _still_allowed(call, project_id):
                return
        await call.context.flush_if_running(project_id)
        store = call.context.store_reader(project_id)
        rows = store.logs(after, call.query.limit) if store else ()
        if rows:
            after = rows[-1].sequence
            sent = b"".join(_server_sent(row) for row in rows if wanted.matches(row.row))
            heard = time.monotonic() if sent else heard
            yield sent
            if len(rows) == call.query.limit:
                continue
        after = max(after, 0)  # -n counts from the end, which an empty log does not have
        if time.monotonic() >= heard + _SILENCE_S:
            heard = time.monotonic()
            yield b": nothing new\n\n"
        yield b""
        await asyncio.sleep(_POLL_S)


def _still_allowed(call: Call[Any, Any], project_id: int) -> bool:
    account = call.caller and current_account(call.context, call.caller)
    return account is not None and may_read_project(call.context, account, project_id)


def _server_sent(row: NumberedRow) -> bytes:
    data = replies.to_json(log_line(row.row, row.sequence)).rstrip()
    return b"id: %d\ndata: %b\n\n" % (row.sequence, data)


def _metric(numbered: Numbered[MetricRow]) -> SubmittedMetric:
    row = numbered.row
    return SubmittedMetric(
        sequence=str(numbered.sequence),
        time=rfc3339(row.time_ms),
        applet_name=row.applet_name,
        instance_id=str(row.instance_id),
        event_id=row.event_id,
        value=msgspec.Raw(row.value.encode()),
    )


ROUTES: tuple[Route, ...] = (
    Route("GET", "/applet_log/{projectName}", "ListAppletLog", read_log),
    Route("GET", "/applet_metrics/{projectName}", "ListAppletMetrics", read_metrics),
)
