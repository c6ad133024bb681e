"""Replay and discard dead letters: by their ids, or all that a filter selects.

Source: ours; the original interface has no such routes.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from fieldbrook.actors.wire import DISCARD, REPLAY
from fieldbrook.core.errors import BadRequestError, FieldError
from fieldbrook.gateway.management.framework.binding import MISSING, RowLimit, Sfid
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.events.dead_letters import SelectLetters
from fieldbrook.storage.project.dead_letters import ANY_LETTER, LetterRange

_IDS_LIMIT = 100
_REPLAY_BATCH = 10  # letters per command; a command has 15 s for all their handlers
_EVERYTHING = 1 << 30


class ChooseLetters(SelectLetters, frozen=True, kw_only=True):
    """A filter for the letters to change; `all` selects every letter of the project.

    One call takes at most `limit` letters, oldest first. To continue, send the `next` of the
    answer as `after`: it ends with the letters that the first call found. With `dryRun` the
    letters are only counted.
    """

    all: bool = False
    limit: RowLimit = 100
    after: Annotated[str, msgspec.Meta(pattern="^([0-9]{1,18}-[0-9]{1,18})?$")] = ""
    dry_run: bool = msgspec.field(name="dryRun", default=False)


class ReplayLetters(ChooseLetters, frozen=True, kw_only=True):
    """The dead letters to replay: 1 to 100 ids, or a filter."""

    letter_ids: list[Sfid] | None = msgspec.field(name="letterIDs", default=None)


class DiscardLetters(ChooseLetters, frozen=True, kw_only=True):
    """The dead letters to discard: 1 to 100 ids, or a filter."""

    letter_ids: list[Sfid] = msgspec.field(name="letterID", default_factory=list)


class ReplayedLetter(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay: the handler's code, or -1 and the reason of the failure."""

    letter_id: str = msgspec.field(name="letterID")
    instance_id: str = msgspec.field(name="instanceID")
    code: int
    reason: str = msgspec.field(name="errMsg")


class ReplayedLetters(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a replay by ids, in their order."""

    results: list[ReplayedLetter]


class ReplayedSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a replay by a filter.

    `failed` of the `replayed` letters have left new ones. `notReplayable` are letters without
    their strategy, which stay. `next` is empty when no letter is left.
    """

    found: int
    replayed: int
    failed: int
    not_replayable: int = msgspec.field(name="notReplayable")
    following: str = msgspec.field(name="next")


class DiscardedSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what a filter has discarded; `next` is empty when no letter is left."""

    found: int
    discarded: int
    following: str = msgspec.field(name="next")


async def replay_letters(
    call: Call[ReplayLetters, None],
) -> ReplayedLetters | ReplayedSelection:
    """Replay dead letters through their handlers: those with the given ids, in their order, or
    all that a filter selects, oldest first.

    Each replayed letter is removed. If its handler fails again, it leaves a new dead letter, which
    is not replayed by the same call nor by those that continue it.
    """
    project_id, body = own_project(call).project_id, call.body
    if body.letter_ids is not None:
        _refuse_both(body, "letterIDs", "body")
        numbers = _require_ids(body.letter_ids, "letterIDs")
        outcome = await call.command(project_id, REPLAY, numbers)
        return ReplayedLetters(
            results=[
                ReplayedLetter(
                    letter_id=str(number), instance_id=str(instance), code=code, reason=error
                )
                for number, (instance, code, error) in zip(numbers, outcome, strict=True)
            ]
        )
    numbers, following = await _choose(call, project_id, body, "letterIDs", "body")
    replayed = failed = 0
    for start in range(0, 0 if body.dry_run else len(numbers), _REPLAY_BATCH):
        batch = numbers[start : start + _REPLAY_BATCH]
        for instance, _, error in await call.command(project_id, REPLAY, batch):
            replayed += instance > 0
            failed += instance > 0 and bool(error)
    return ReplayedSelection(
        found=len(numbers),
        replayed=replayed,
        failed=failed,
        not_replayable=0 if body.dry_run else len(numbers) - replayed,
        following=following,
    )


async def discard_letters(call: Call[None, DiscardLetters]) -> DiscardedSelection | None:
    """Discard dead letters: those with the given ids, where ids that the project does not have
    are ignored, or all that a filter selects, oldest first."""
    project_id, query = own_project(call).project_id, call.query
    if query.letter_ids:
        _refuse_both(query, "letterID", "query")
        await call.command(project_id, DISCARD, _require_ids(query.letter_ids, "letterID"))
        return None
    numbers, following = await _choose(call, project_id, query, "letterID", "query")
    if numbers and not query.dry_run:
        await call.command(project_id, DISCARD, numbers)
    return DiscardedSelection(
        found=len(numbers),
        discarded=0 if query.dry_run else len(numbers),
        following=following,
    )


async def _choose(
    call: Call[Any, Any], project_id: int, chosen: ChooseLetters, ids: str, where: str
) -> tuple[list[int], str]:
    """Select letters by a filter.

    Returns:
        The numbers, oldest first, and the `after` that continues; "" when nothing is left.
    """
    wanted = chosen.filter
    if wanted == ANY_LETTER and not chosen.all:
        raise BadRequestError(FieldError(ids, f"{MISSING}: or a filter, or all=true", where))
    if wanted != ANY_LETTER and chosen.all:
        raise BadRequestError(FieldError("all", "cannot be given with a filter", where))
    store = await call.context.flushed_store(project_id)
    if store is None:
        return [], ""
    after, _, until = chosen.after.partition("-")
    limit = _EVERYTHING if chosen.dry_run else chosen.limit
    selected = LetterRange(int(after or 0), int(until or 0))
    found, last = await call.search(lambda: store.select_dead_letters(wanted, selected, limit))
    return found, f"{found[-1]}-{last}" if len(found) == limit else ""


def _refuse_both(chosen: ChooseLetters, ids: str, where: str) -> None:
    if chosen.all or chosen.filter != ANY_LETTER or chosen.after or chosen.dry_run:
        raise BadRequestError(FieldError(ids, "cannot be given with a filter", where))


def _require_ids(numbers: list[Sfid], field: str) -> list[int]:
    if not 1 <= len(numbers) <= _IDS_LIMIT:
        reason = f"between 1 and {_IDS_LIMIT} ids, got {len(numbers)}"
        raise BadRequestError(FieldError(field, reason, "body"))
    return list(numbers)


ROUTES: tuple[Route, ...] = (
    Route("POST", "/dead_letter/{projectName}/replay", "ReplayDeadLetters", replay_letters),
    Route("DELETE", "/dead_letter/{projectName}", "DiscardDeadLetters", discard_letters),
)
