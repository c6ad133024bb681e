"""What monitors send: the events of logs, transactions and heights, and their way to a project.

An event's id is made of what it is about, so that one that comes again is known again. What
it says is the same each time it is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fieldbrook.actors.wire import BY_CHAIN, EXACT, NAMED, WireEvent
from fieldbrook.chain.blocks.logs import Log, encoded
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
from fieldbrook.gateway.events.project_client import Outcome, Settle
from fieldbrook.observability import metrics
from fieldbrook.storage.chain.store import Told

log = logging.getLogger(__name__)

REMOVED_SUFFIX = "_REMOVED"
_TOGETHER = 256
_RETRY_S, _RETRY_MOST_S = 0.5, 30.0
_TEMPORARY = (
    *(TooManyRequestsError, UnavailableError, StoreError),
    # A chain's events come once, so they wait until the account may have events again.
    *(DisabledAccountError, StorageQuotaError),
)

Submit = Callable[[int, WireEvent, Settle], None]
Decode = Callable[[Log], Mapping[str, Any]]


def payload_of(found: Log, decode: Decode | None = None) -> bytes:
    """The payload of a log: as geth writes it (interface document, 5.8), and beside it what
    an ABI makes of it where the monitor has one."""
    read: Mapping[str, Any] = {}
    if decode is not None:
        try:
            read = decode(found)
        except Exception:
            # One log that a library stumbles over must not hold the chain for everybody.
            log.exception("log %d of %s cannot be read", found.index, found.transaction_hash)
    return encoded({**found.as_json(), **read})


def told_event(monitor: Monitor, row: Told) -> WireEvent:
    """The event of a log, or of a transaction that is in a block."""
    return _event(monitor.event_type, _told_id(monitor, row), row.payload, NAMED)


def removed_event(monitor: Monitor, row: Told) -> WireEvent:
    """The event that takes another back. It has a type of its own, and goes to nobody who
    does not ask for that: a handler of logs would take it for another log."""
    event_type = (monitor.event_type or DEFAULT_EVENT_TYPE) + REMOVED_SUFFIX
    if monitor.kind == CHAIN_TX:  # of which geth does not say whether it was removed
        payload = row.payload[:-1] + b',"removed":true}'
    else:
        payload = row.payload.replace(b'"removed":false', b'"removed":true', 1)
    return _event(event_type, "removed-" + _told_id(monitor, row), payload, NAMED | EXACT)


def height_event(monitor: Monitor) -> WireEvent:
    """The event of a height that the chain has reached."""
    event_id = f"height-{monitor.chain_id}-{monitor.height}-{monitor.monitor_id}"
    return _event(monitor.event_type, event_id, encoded({"HeaderNumber": monitor.height}), NAMED)


async def deliver(
    submit: Submit, project_id: int, events: Sequence[WireEvent], trouble: Callable[[str], None]
) -> None:
    """Have a project handle events in order; returns when each was answered.

    What the project cannot take now is sent again until it can. What it can never take is a
    line in the log.

    Args:
        trouble: told why nothing goes on, each time it does not.
    """
    waiting = list(events)
    pause_s = _RETRY_S
    while waiting:
        part = waiting[:_TOGETHER]
        metrics.add(metrics.EVENTS_RECEIVED, len(part))
        outcomes = await _answers(submit, project_id, part)
        refused = []
        for event, outcome in zip(part, outcomes, strict=True):
            if isinstance(outcome, NodeError):
                metrics.refused(outcome.key)
            if isinstance(outcome, _TEMPORARY):
                refused.append((event, outcome))
            elif isinstance(outcome, NodeError):
                log.error("event %s of a chain was not handled: %s", event[2], outcome)
        waiting[: len(part)] = [event for event, _ in refused]
        if refused:
            trouble(str(refused[0][1]))
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
        if not answer.done():  # nobody waits any more for what was cancelled
            answer.set_result(outcome)

    return settle


def _told_id(monitor: Monitor, row: Told) -> str:
    again = f"-{row.round}" if row.round else ""
    kind = "tx" if monitor.kind == CHAIN_TX else "log"
    place = f"{monitor.chain_id}-{row.block_hash.hex()}-{row.index}"
    return f"{kind}-{place}-{monitor.monitor_id}{again}"


def _event(event_type: str, event_id: str, payload: bytes, kind: int) -> WireEvent:
    event_type = event_type or DEFAULT_EVENT_TYPE
    return event_type, NODE_PUBLISHER, event_id, payload, clock.now_ms(), kind | BY_CHAIN, ""
