"""Traces: for a number of events, the host calls of their handlers are kept beside the history.

Source: ours; the original interface has no such routes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from fieldbrook.actors.wire import TRACE
from fieldbrook.core.clock import rfc3339
from fieldbrook.core.errors import PublisherNotFoundError
from fieldbrook.core.host_calls import HostCall
from fieldbrook.core.model import Project
from fieldbrook.gateway.management.framework.binding import Text
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.data.encoding import Bytes, shown_bytes
from fieldbrook.security.access_keys import Group, Permission, permission_on
from fieldbrook.storage.project.history.traces import EventTrace

Source = Literal["http", "mqtt", "cron", "api", "chain"]
_GROUP = Group.WASM_LOG
_SHOWN_BY_CALLS = (Group.WASM_LOG, Group.PROJECT_CONFIG)  # for rows and values, for variables


class TraceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of events: by type, by publisher (key or id), by source."""

    event_type: Text = msgspec.field(name="type", default="")
    publisher: Text = ""
    source: Source | None = None


class StartTrace(msgspec.Struct, frozen=True, kw_only=True):
    """Trace the next `events` events that the filter selects, for at most `minutes`."""

    events: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100
    minutes: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10
    filter: TraceFilter = TraceFilter()


class TraceState(msgspec.Struct, frozen=True, kw_only=True):
    """The trace of a project. `remaining` is 0 when none is on; then there is no `until`.

    `kept` is the number of events whose host calls are kept, also from earlier traces.
    """

    remaining: int
    until: str | msgspec.UnsetType = msgspec.UNSET
    filter: TraceFilter
    kept: int


class TracedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a host function by a handler.

    `subject` is a key, a statement, a topic, a variable, the level of a log record, or a request.
    `result` is what the handler got, wrote, logged or sent; it is absent when there was none, such
    as for an unknown key. `before` is the value of a key before it was written. `error` is why the
    call was refused. `atUs` is the time from the start of the run to the call, and `us` the time
    that the host worked for it; both in microseconds.
    """

    function: str
    subject: Bytes
    before: Bytes | msgspec.UnsetType = msgspec.UNSET
    result: Bytes | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET
    at_us: int = msgspec.field(name="atUs")
    us: int
    strategy_id: str = msgspec.field(name="strategyID")


class TracedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a handler: its microseconds, with host calls and the recording of them, and the
    linear memory of its instance after it. Traces of early versions of the node lack the latter."""

    strategy_id: str = msgspec.field(name="strategyID")
    us: int
    memory_bytes: int | msgspec.UnsetType = msgspec.field(name="memoryBytes", default=msgspec.UNSET)


class EventCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The host calls of an event's handlers in order; `omitted` calls after them were not kept.

    Traces of early versions of the node have no `runs`.
    """

    calls: list[TracedCall]
    omitted: int
    runs: list[TracedRun]


async def start_trace(call: Call[StartTrace, None]) -> TraceState:
    """Keep the host calls of the next events; replaces a trace that is on. It ends after its
    events, after its time, and when the project stops, moves or starts again."""
    project, body = own_project(call), call.body
    wanted = body.filter
    publisher_id = 0
    if wanted.publisher:
        publisher = call.context.reader.publisher(project.project_id, wanted.publisher)
        if publisher is None:
            raise PublisherNotFoundError(pub_id=wanted.publisher)
        publisher_id = publisher.publisher_id
    order = [
        *(body.events, body.minutes * 60, wanted.event_type),
        *(publisher_id, wanted.publisher, wanted.source or ""),
    ]
    await call.command(project.project_id, TRACE, order)
    return await _state(call, project)


async def read_trace(call: Call[None, None]) -> TraceState:
    """The trace of a project: how many events are left, until when, its filter, and how many events
    have a trace."""
    return await _state(call, own_project(call))


async def stop_trace(call: Call[None, None]) -> None:
    """End the trace of a project; traces of events that it has stored remain."""
    project = own_project(call)
    if await call.context.trace_state(project.project_id) is not None:
        await call.command(project.project_id, TRACE, [])


async def _state(call: Call[StartTrace, None] | Call[None, None], project: Project) -> TraceState:
    state = await call.context.trace_state(project.project_id)
    store = call.context.store_reader(project.project_id)  # by now the traces are written
    kept = await call.search(store.trace_count) if store else 0
    if state is None:
        return TraceState(remaining=0, filter=TraceFilter(), kept=kept)
    remaining, until_ms, event_type, publisher, source = state
    return TraceState(
        remaining=remaining,
        until=rfc3339(until_ms),
        filter=TraceFilter(event_type=event_type, publisher=publisher, source=source or None),
        kept=kept,
    )


def may_read_calls(call: Call[Any, Any]) -> bool:
    """Return whether the caller may read the content of host calls; a login may."""
    key = call.key
    return key is None or all(
        permission_on(key, group) >= Permission.READONLY for group in _SHOWN_BY_CALLS
    )


def event_calls(trace: EventTrace) -> EventCalls:
    """Return the view of a trace."""
    return EventCalls(
        calls=[_call(each) for each in trace.calls],
        omitted=trace.omitted,
        runs=[
            TracedRun(
                strategy_id=str(number),
                us=us,
                memory_bytes=trace.memory_bytes[at] if trace.memory_bytes else msgspec.UNSET,
            )
            for at, (number, us) in enumerate(trace.runs)
        ],
    )


def _call(call: HostCall) -> TracedCall:
    return TracedCall(
        function=call.function,
        subject=shown_bytes(call.subject),
        before=msgspec.UNSET if call.before is None else shown_bytes(call.before),
        result=msgspec.UNSET if call.result is None else shown_bytes(call.result),
        error=call.error or msgspec.UNSET,
        at_us=call.at_us,
        us=call.us,
        strategy_id=str(call.strategy_id),
    )


_PATH = "/event_log/{projectName}/trace"

ROUTES: tuple[Route, ...] = (
    Route("POST", _PATH, "StartTrace", start_trace, group=_GROUP),
    Route("GET", _PATH, "GetTrace", read_trace, group=_GROUP),
    Route("DELETE", _PATH, "StopTrace", stop_trace, group=_GROUP),
)
