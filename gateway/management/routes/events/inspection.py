"""Read the applet log and the applet metrics of a project."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.model import ADMIN, ENABLED
from fieldbrook.gateway import replies
from fieldbrook.gateway.management.framework.binding import RowLimit
from fieldbrook.gateway.management.framework.ownership import (
    may_project,
    own_project,
)
from fieldbrook.gateway.management.framework.route import Call, Route, Stream
from fieldbrook.gateway.management.framework.views import Json
from fieldbrook.gateway.management.routes.events.log_lines import LogLine, log_line
from fieldbrook.storage.lmdb.rows import Numbered
from fieldbrook.storage.project.rows import MetricRow, NumberedRow

_POLL_S = 0.25
_SILENCE_S = 15.0  # after so long without rows, a comment keeps the connection alive
_SEQUENCE_LIMIT = (1 << 63) - 1


class ReadLog(msgspec.Struct, frozen=True, kw_only=True):
    """Rows with a sequence above `after`, oldest first; -20 gives the last 20."""

    after: Annotated[int, msgspec.Meta(ge=-1_000, le=_SEQUENCE_LIMIT)] = 0
    limit: RowLimit = 100


class FollowLog(ReadLog, frozen=True, kw_only=True):
    """With `follow`, new rows are sent as they are written, as server-sent events."""

    follow: bool = False


async def read_log(call: Call[None, FollowLog]) -> Json | Stream:
    """A part of the applet log; `next` is the `after` of the following request. With `follow`
    each row is a server-sent event whose id is the sequence; `Last-Event-ID` resumes after it."""
    project = own_project(call)
    if call.query.follow:
        chunks = _follow(call, project.project_id, _start_sequence(call))
        return Stream(chunks, call.account.account_id, call.account.role == ADMIN)
    store = await call.context.flushed_store(project.project_id)
    rows = store.logs(call.query.after, call.query.limit) if store else ()
    following = rows[-1].sequence if rows else max(call.query.after, 0)
    return {"data": [_row_json(row) for row in rows], "next": str(following)}


async def read_metrics(call: Call[None, ReadLog]) -> Json:
    """A part of the metrics that applets submitted, with the paging of the applet log."""
    store = call.context.store_reader(own_project(call).project_id)
    rows = store.metrics(call.query.after, call.query.limit) if store else ()
    following = rows[-1].sequence if rows else max(call.query.after, 0)
    return {"data": [_metric_json(row) for row in rows], "next": str(following)}


def _start_sequence(call: Call[None, FollowLog]) -> int:
    """The sequence to start after: the `Last-Event-ID` of a client that reconnects, or `after`."""
    seen = call.last_event_id
    if seen.isascii() and seen.isdecimal() and int(seen) <= _SEQUENCE_LIMIT:
        return int(seen)
    return call.query.after


async def _follow(
    call: Call[None, FollowLog], project_id: int, after: int
) -> AsyncGenerator[bytes, None]:
    """Yield new rows until the caller loses access, or the lifetime of a login has passed.

    The time limit makes a long-running client reconnect and authenticate again.
    """
    reader = call.context.reader
    version = reader.version()
    started = heard = time.monotonic()
    while time.monotonic() < started + call.context.token_lifetime_s:
        if call.key is not None and 0 < call.key.expires_at <= call.context.clock():
            return
        if reader.version() != version:
            version = reader.version()
            if not _still_allowed(call, project_id):
                return
        store = call.context.store_reader(project_id)
        rows = store.logs(after, call.query.limit) if store else ()
        if rows:
            after, heard = rows[-1].sequence, time.monotonic()
            yield b"".join(_server_sent(row) for row in rows)
            if len(rows) == call.query.limit:
                continue
        after = max(after, 0)  # -n counts from the end, which an empty log does not have
        if time.monotonic() >= heard + _SILENCE_S:
            heard = time.monotonic()
            yield b": nothing new\n\n"
        yield b""
        await asyncio.sleep(_POLL_S)


def _still_allowed(call: Call[Any, Any], project_id: int) -> bool:
    account = call.context.reader.account(call.account.account_id)
    key = call.key
    if key is None:
        # A login may have been ended; access keys are not affected by that.
        if account is not None and account.token_generation != call.account.token_generation:
            return False
        if call.login is not None and call.context.reader.has_ended(call.login):
            return False
    else:
        now = call.context.reader.access_key_with_digest(key.digest)
        if now is None or (now.privileges, now.expires_at) != (key.privileges, key.expires_at):
            return False
    return account is not None and account.state == ENABLED and may_project(call, project_id)


def _server_sent(row: NumberedRow) -> bytes:
    data = replies.to_json(_row_json(row)).rstrip()
    return b"id: %d\ndata: %b\n\n" % (row.sequence, data)


def _row_json(numbered: NumberedRow) -> LogLine:
    return log_line(numbered.row, numbered.sequence)


def _metric_json(numbered: Numbered[MetricRow]) -> Json:
    row = numbered.row
    return {
        "sequence": str(numbered.sequence),
        "time": rfc3339(row.time_ms),
        "appletName": row.applet_name,
        "instanceID": str(row.instance_id),
        "eventID": row.event_id,
        "value": msgspec.Raw(row.value.encode()),
    }


ROUTES: tuple[Route, ...] = (
    Route("GET", "/applet_log/{projectName}", "ListAppletLog", read_log),
    Route("GET", "/applet_metrics/{projectName}", "ListAppletMetrics", read_metrics),
)
