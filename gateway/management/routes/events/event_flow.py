"""The flow of a project's events: who sent them, which handlers ran, what they caused.

Source: ours; the original interface has no such route.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from fieldbrook.core.clock import now_ms, rfc3339
from fieldbrook.core.model import Project
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.storage.project.history.flow import Flow, Sender, Traffic
from fieldbrook.storage.project.outbox import DeliveryCounts
from fieldbrook.wasm.module.effects import effects_of_module

_TYPES_LIMIT = 500
_SENDERS_LIMIT = 1_000
_DIGITS = 3


class ReadFlow(msgspec.Struct, frozen=True, kw_only=True):
    """The number of seconds before now whose events are counted."""

    seconds: Annotated[int, msgspec.Meta(ge=10, le=3_600)] = 300


class TypeFlow(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a type. `perSecond` is their rate over the last 10 seconds."""

    event_type: str = msgspec.field(name="eventType")
    events: int
    failed: int
    per_second: float = msgspec.field(name="perSecond")


class SourceFlow(TypeFlow, frozen=True, kw_only=True):
    """Events of a type from one sender. `publisherID` is "0" when no publisher sent them."""

    source: str
    publisher_id: str = msgspec.field(name="publisherID")
    last_at: str | msgspec.UnsetType = msgspec.field(name="lastAt", default=msgspec.UNSET)


class HandlerFailures(msgspec.Struct, frozen=True, kw_only=True):
    """The number of failed runs of a strategy's handler."""

    strategy_id: str = msgspec.field(name="strategyID")
    failed: int


class SendFlow(msgspec.Struct, frozen=True, kw_only=True):
    """The effects that handlers have sent: `kind` is `mqtt`, `api` or `chain`."""

    kind: str
    delivered: int
    refused: int
    waiting: int


class AppletEffects(msgspec.Struct, frozen=True, kw_only=True):
    """The effects that an applet can have, by the host functions that its module imports.

    They are `kv`, `sql`, `mqtt`, `chain`, `api` and `metrics`.
    """

    applet_id: str = msgspec.field(name="appletID")
    effects: list[str]


class FlowReply(msgspec.Struct, frozen=True, kw_only=True):
    """The events that were handled from `begin` until `end`.

    `types` counts all events, but at most the 500 most frequent types. `sources` counts the newest
    4,000 events and older failures. `handlers` has the strategies that failed.
    """

    begin: str
    end: str
    types: list[TypeFlow]
    sources: list[SourceFlow]
    handlers: list[HandlerFailures]
    sends: list[SendFlow]
    applets: list[AppletEffects]


async def read_flow(call: Call[None, ReadFlow]) -> FlowReply:
    """How the events of the last minutes flowed: by type, by sender, by handler, and what
    handlers have sent."""
    project = own_project(call)
    end_ms = now_ms()
    begin_ms = end_ms - call.query.seconds * 1000
    store = await call.context.flushed_store(project.project_id)
    flow, sends = Flow(begin_ms, end_ms), dict[str, DeliveryCounts]()
    if store is not None:
        flow, sends = await call.search(
            lambda: (store.flow(begin_ms, end_ms), store.deliveries(begin_ms))
        )
    applets = await call.search(lambda: _applets(call, project))
    return FlowReply(
        begin=rfc3339(begin_ms),
        end=rfc3339(end_ms),
        types=[
            TypeFlow(event_type=name, **_figures(traffic, flow))
            for name, traffic in _busiest(flow.types, _TYPES_LIMIT)
        ],
        sources=[
            _source(sender, traffic, flow)
            for sender, traffic in _busiest(flow.senders, _SENDERS_LIMIT)
        ],
        handlers=[
            HandlerFailures(strategy_id=str(strategy_id), failed=failed)
            for strategy_id, failed in flow.failures.most_common()
        ],
        sends=[SendFlow(kind=kind, **counts._asdict()) for kind, counts in sends.items()],
        applets=applets,
    )


def _busiest(traffic: dict[Any, Traffic], limit: int) -> list[tuple[Any, Traffic]]:
    return sorted(traffic.items(), key=lambda item: -item[1].events)[:limit]


def _figures(traffic: Traffic, flow: Flow) -> dict[str, Any]:
    rate = round(traffic.late / flow.rate_s, _DIGITS)
    return {"events": traffic.events, "failed": traffic.failed, "per_second": rate}


def _source(sender: Sender, traffic: Traffic, flow: Flow) -> SourceFlow:
    return SourceFlow(
        event_type=sender.event_type,
        source=sender.source,
        publisher_id=str(sender.publisher_id),
        last_at=rfc3339(traffic.last_ms) if traffic.last_ms else msgspec.UNSET,
        **_figures(traffic, flow),
    )


def _applets(call: Call[None, ReadFlow], project: Project) -> list[AppletEffects]:
    reader, folder = call.context.reader, call.context.modules_dir
    found = []
    for applet in reader.applets(project.project_id):
        resource = reader.resource(applet.resource_id)
        path = folder / f"{resource.sha256}.wasm" if resource else Path()
        effects = list(effects_of_module(path)) if resource else []
        found.append(AppletEffects(applet_id=str(applet.applet_id), effects=effects))
    return found


ROUTES: tuple[Route, ...] = (
    Route("GET", "/event_log/{projectName}/flow", "GetEventFlow", read_flow),
)
