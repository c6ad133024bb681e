"""Views of events in the history, for clients."""

from __future__ import annotations

import msgspec

from fieldbrook.core.clock import rfc3339
from fieldbrook.storage.project.history.records import EventRecord, Handled, RecordedTarget
from fieldbrook.storage.project.history.search import PlacedEvent
from fieldbrook.storage.project.outbox import EffectOf
from fieldbrook.storage.registry.service import RegistryReader

Optional = str | msgspec.UnsetType


class HandlerResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one handler: its return code, or -1 and the reason of its failure.

    The ids and the version are absent in events of early versions of the node. `handler` and
    `appletName` are absent when the strategy or the applet was removed.
    """

    instance_id: str = msgspec.field(name="instanceID")
    code: int
    reason: str = msgspec.field(name="errMsg")
    strategy_id: Optional = msgspec.field(name="strategyID", default=msgspec.UNSET)
    applet_id: Optional = msgspec.field(name="appletID", default=msgspec.UNSET)
    version: int | msgspec.UnsetType = msgspec.field(name="appletVersion", default=msgspec.UNSET)
    handler: Optional = msgspec.UNSET
    applet_name: Optional = msgspec.field(name="appletName", default=msgspec.UNSET)


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the history.

    `again` marks a duplicate, which did not run. `error` names the error when the node itself
    could not handle the event. `place` identifies the row. `outcome` is `failed` when a handler
    failed or returned a negative code or there is an `error`, `unhandled` when no strategy matched
    the type, `duplicate`, or `ok`. `traced` is there, and true, when the host calls of the event
    were recorded.
    """

    event_id: str = msgspec.field(name="eventID")
    event_type: str = msgspec.field(name="eventType")
    source: str
    publisher_id: str = msgspec.field(name="publisherID")
    size: int
    received_at: str = msgspec.field(name="receivedAt")
    handled_at: str = msgspec.field(name="handledAt")
    again: bool
    results: list[HandlerResult]
    error: Optional = msgspec.UNSET
    place: str
    outcome: str
    traced: bool | msgspec.UnsetType = msgspec.UNSET


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """A message, an API call or a transaction that an event has sent.

    `kind` is `mqtt`, `api` or `chain:<chain id>`. `state` is `waiting`, `delivered` or `refused`;
    `at` is when it was delivered or refused.
    """

    kind: str
    target: str
    size: int
    state: str
    at: Optional = msgspec.UNSET
    reason: Optional = msgspec.UNSET


class EventRows:
    """Makes rows with the current names of applets and handlers; each name is read once."""

    def __init__(self, reader: RegistryReader) -> None:
        self._reader = reader
        self._known: dict[int, tuple[Optional, Optional]] = {}

    def row(self, event: PlacedEvent) -> EventRow:
        """Make the row of one event."""
        record = event.record
        return EventRow(
            event_id=record.event_id,
            event_type=record.event_type,
            source=record.source,
            publisher_id=str(record.publisher_id),
            size=record.size,
            received_at=rfc3339(record.received_at),
            handled_at=rfc3339(record.handled_at),
            again=record.is_duplicate,
            results=self._results(record),
            error=record.refusal or msgspec.UNSET,
            place=str(event.place),
            outcome=record.outcome,
            traced=record.is_traced or msgspec.UNSET,
        )

    def _results(self, record: EventRecord) -> list[HandlerResult]:
        if len(record.targets) != len(record.results):
            return [_result(part) for part in record.results]
        return [
            self._routed_result(part, target)
            for part, target in zip(record.results, record.targets, strict=True)
        ]

    def _routed_result(self, part: Handled, target: RecordedTarget) -> HandlerResult:
        known = self._known.get(target.strategy_id)
        if known is None:
            strategy = self._reader.strategy(target.strategy_id)
            applet = self._reader.applet(target.applet_id)
            known = self._known[target.strategy_id] = (
                strategy.handler if strategy else msgspec.UNSET,
                applet.name if applet else msgspec.UNSET,
            )
        return msgspec.structs.replace(
            _result(part),
            strategy_id=str(target.strategy_id),
            applet_id=str(target.applet_id),
            version=target.version,
            handler=known[0],
            applet_name=known[1],
        )


def _result(part: Handled) -> HandlerResult:
    return HandlerResult(instance_id=str(part.instance_id), code=part.code, reason=part.reason)


def effect_row(effect: EffectOf) -> Effect:
    """Make the view of an effect."""
    return Effect(
        kind=effect.kind,
        target=effect.target,
        size=effect.size,
        state="refused" if effect.refused else "delivered" if effect.done_ms else "waiting",
        at=rfc3339(effect.done_ms) if effect.done_ms else msgspec.UNSET,
        reason=effect.refused or msgspec.UNSET,
    )
