"""Events of monitors: made from logs, transactions and heights, and delivered to projects.

The id of an event is derived from its log, transaction or height, and its payload is the same each
time it is sent. Therefore deduplication recognises an event that is sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fieldbrook.actors.wire import BY_CHAIN, EXACT, NAMED, WireEvent
from fieldbrook.chain.blocks.logs import Log, encode_payload
from fieldbrook.core import clock
from fieldbrook.core.errors import (
    DisabledAccountError,
    NodeError,
    StorageQuotaError,
    StoreError,
    TooManyRequestsError,
    UnavailableError,
)
from fieldbrook.core.model import CHAIN_TX, DEFAULT_EVENT_TYPE, NODE_PUBLISHER, Monitor
from fieldbrook.gateway.links.pending_event import Outcome, Settle
from fieldbrook.observability import metrics
from fieldbrook.storage.chain.store import AnnouncedEvent

log = logging.getLogger(__name__)

REMOVED_SUFFIX = "_REMOVED"
_IN_FLIGHT = 256  # events of one delivery that wait for their answers at the same time
_RETRY_S, _RETRY_MOST_S = 0.5, 30.0
_TEMPORARY = (
    *(TooManyRequestsError, UnavailableError, StoreError),
    # A device would retry, but a chain does not. So the node retries until the account may send
    # events again.
    *(DisabledAccountError, StorageQuotaError),
)

Submit = Callable[[int, WireEvent, Settle], None]
Decode = Callable[[Log], Mapping[str, Any]]


def payload_of(found: Log, decode: Decode | None = None) -> bytes:
    """Make the payload of a log: JSON as geth writes it (interface document, 5.8).

    The decoder's fields are added if the monitor has an ABI.
    """
    read: Mapping[str, Any] = {}
    if decode is not None:
        try:
            read = decode(found)
        except Exception:
            # A log that makes a library fail must not block all monitors of the chain.
            log.exception(
                "log %d of transaction %s cannot be decoded", found.index, found.transaction_hash
            )
    return encode_payload({**found.as_json(), **read})


def announced_event(monitor: Monitor, row: AnnouncedEvent) -> WireEvent:
    """Make the event of a log or a mined transaction."""
    return _event(monitor.event_type, _announced_id(monitor, row), row.payload, NAMED)


def removed_event(monitor: Monitor, row: AnnouncedEvent) -> WireEvent:
    """Make the event that retracts an earlier event after a reorganisation.

    The event has an event type of its own and is routed only to strategies for exactly this type.
    Otherwise a handler of logs would treat the retraction as another log.
    """
    event_type = (monitor.event_type or DEFAULT_EVENT_TYPE) + REMOVED_SUFFIX
    if monitor.kind == CHAIN_TX:  # geth's transactions have no `removed` field
        payload = row.payload[:-1] + b',"removed":true}'
    else:
        payload = row.payload.replace(b'"removed":false', b'"removed":true', 1)
    return _event(event_type, "removed-" + _announced_id(monitor, row), payload, NAMED | EXACT)


def height_event(monitor: Monitor) -> WireEvent:
    """Make the event for a block height that the chain has reached."""
    event_id = f"height-{monitor.chain_id}-{monitor.height}-{monitor.monitor_id}"
    return _event(
        monitor.event_type, event_id, encode_payload({"HeaderNumber": monitor.height}), NAMED
    )


async def deliver(
    submit: Submit, project_id: int, events: Sequence[WireEvent], on_refusal: Callable[[str], None]
) -> None:
    """Deliver events to a project in order, and return when each was answered.

    An event with a temporary error is sent again until it is answered. An event with any other
    error is logged and dropped.

    Args:
        submit: sends one event to a project.
        project_id: the project.
        events: the events.
        on_refusal: called with the reason of a temporary error, once per attempt.
    """
    waiting = list(events)
    pause_s = _RETRY_S
    while waiting:
        part = waiting[:_IN_FLIGHT]
        metrics.add(metrics.EVENTS_RECEIVED, len(part))
        outcomes = await _answers(submit, project_id, part)
        refused = []
        for event, outcome in zip(part, outcomes, strict=True):
            if isinstance(outcome, NodeError):
                metrics.refused(outcome.key)
            if isinstance(outcome, _TEMPORARY):
                refused.append((event, outcome))
            elif isinstance(outcome, NodeError):
                log.error("event %s of a chain was not handled, dropped: %s", event[2], outcome)
        waiting[: len(part)] = [event for event, _ in refused]
        if refused:
            on_refusal(str(refused[0][1]))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _RETRY_MOST_S)
        else:
            pause_s = _RETRY_S


async def _answers(
    submit: Submit, project_id: int, events: Sequence[WireEvent]
) -> Sequence[Outcome]:
    loop = asyncio.get_running_loop()
    answers: list[asyncio.Future[Outcome]] = []
    for event in events:
        answer: asyncio.Future[Outcome] = loop.create_future()
        answers.append(answer)
        try:
            submit(project_id, event, _settling(answer))
        except NodeError as error:
            answer.set_result(error)
    return await asyncio.gather(*answers)


def _settling(answer: asyncio.Future[Outcome]) -> Settle:
    def settle(outcome: Outcome) -> None:
        if not answer.done():  # the answer is done if the waiting task was cancelled
            answer.set_result(outcome)

    return settle


def _announced_id(monitor: Monitor, row: AnnouncedEvent) -> str:
    again = f"-{row.round}" if row.round else ""
    kind = "tx" if monitor.kind == CHAIN_TX else "log"
    place = f"{monitor.chain_id}-{row.block_hash.hex()}-{row.index}"
    return f"{kind}-{place}-{monitor.monitor_id}{again}"


def _event(event_type: str, event_id: str, payload: bytes, kind: int) -> WireEvent:
    event_type = event_type or DEFAULT_EVENT_TYPE
    return event_type, NODE_PUBLISHER, event_id, payload, clock.now_ms(), kind | BY_CHAIN, ""
