"""Dead letters: reading, replaying and discarding them.

Source: ours; the original interface has no such routes.
"""

from __future__ import annotations

import base64

import msgspec

from fieldbrook.actors.wire import DISCARD, REPLAY
from fieldbrook.core.clock import rfc3339
from fieldbrook.core.errors import BadRequestError, DeadLetterNotFoundError, FieldError
from fieldbrook.gateway.management.framework.binding import RowLimit, Sfid
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.storage.project.dead_letters import NumberedDeadLetter

_IDS_LIMIT = 100


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


class DeadLetterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter without its payload; `size` is that of the payload in bytes."""

    letter_id: str = msgspec.field(name="letterID")
    event_id: str = msgspec.field(name="eventID")
    event_type: str = msgspec.field(name="eventType")
    publisher_id: str = msgspec.field(name="publisherID")
    applet_name: str = msgspec.field(name="appletName")
    strategy_id: str = msgspec.field(name="strategyID")
    handler: str
    reason: str
    attempts: int
    size: int
    received_at: str = msgspec.field(name="receivedAt")
    failed_at: str = msgspec.field(name="failedAt")


class WholeDeadLetter(DeadLetterRow, frozen=True, kw_only=True):
    """A dead letter with its payload in base64."""

    payload: str


class DeadLetterList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of dead letters, newest first; `total` counts all of the project."""

    data: list[DeadLetterRow]
    total: int


class ReplayedLetter(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay: the handler's code, or -1 and the reason of the failure."""

    letter_id: str = msgspec.field(name="letterID")
    instance_id: str = msgspec.field(name="instanceID")
    code: int
    reason: str = msgspec.field(name="errMsg")


class ReplayedLetters(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a replay, in the order of the letters."""

    results: list[ReplayedLetter]


async def read_letters(call: Call[None, ReadLetters]) -> DeadLetterList:
    """Dead letters without their payloads."""
    store = call.context.store_reader(own_project(call).project_id)
    if store is None:
        return DeadLetterList(data=[], total=0)
    letters, total = store.dead_letters(call.query.before or None, call.query.limit)
    return DeadLetterList(data=[_row(letter) for letter in letters], total=total)


async def read_letter(call: Call[None, None]) -> WholeDeadLetter:
    """One dead letter with its payload."""
    store = call.context.store_reader(own_project(call).project_id)
    number = call.id("letterID")
    letter = store.dead_letter(number) if store else None
    if letter is None:
        raise DeadLetterNotFoundError(letter=number)
    return WholeDeadLetter(
        **msgspec.structs.asdict(_row(NumberedDeadLetter(number, letter))),
        payload=base64.b64encode(letter.payload).decode(),
    )


async def replay_letters(call: Call[ReplayLetters, None]) -> ReplayedLetters:
    """Replay dead letters through their handlers, in the given order.

    Each replayed letter is removed. If its handler fails again, it leaves a new dead letter.
    """
    numbers = _require_ids(call.body.letter_ids, "letterIDs")
    outcome = await call.command(own_project(call).project_id, REPLAY, numbers)
    return ReplayedLetters(
        results=[
            ReplayedLetter(
                letter_id=str(number), instance_id=str(instance), code=code, reason=error
            )
            for number, (instance, code, error) in zip(numbers, outcome, strict=True)
        ]
    )


async def discard_letters(call: Call[None, DiscardLetters]) -> None:
    """Discard dead letters; ids that the project does not have are ignored."""
    numbers = _require_ids(call.query.letter_ids, "letterID")
    await call.command(own_project(call).project_id, DISCARD, numbers)


def _require_ids(numbers: list[Sfid], field: str) -> list[int]:
    if not 1 <= len(numbers) <= _IDS_LIMIT:
        reason = f"between 1 and {_IDS_LIMIT} ids, got {len(numbers)}"
        raise BadRequestError(FieldError(field, reason, "body"))
    return list(numbers)


def _row(numbered: NumberedDeadLetter) -> DeadLetterRow:
    letter = numbered.letter
    return DeadLetterRow(
        letter_id=str(numbered.number),
        event_id=letter.event_id,
        event_type=letter.event_type,
        publisher_id=str(letter.publisher_id),
        applet_name=letter.applet_name,
        strategy_id=str(letter.strategy_id),
        handler=letter.handler,
        reason=letter.reason,
        attempts=letter.attempts,
        size=len(letter.payload),
        received_at=rfc3339(letter.received_at),
        failed_at=rfc3339(letter.time_ms),
    )


ROUTES: tuple[Route, ...] = (
    Route("GET", "/dead_letter/{projectName}", "ListDeadLetters", read_letters),
    Route("GET", "/dead_letter/{projectName}/{letterID}", "GetDeadLetter", read_letter),
    Route("POST", "/dead_letter/{projectName}/replay", "ReplayDeadLetters", replay_letters),
    Route("DELETE", "/dead_letter/{projectName}", "DiscardDeadLetters", discard_letters),
)
