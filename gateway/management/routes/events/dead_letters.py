"""Dead letters: lists, groups, and one letter.

Source: ours; the original interface has no such routes.
"""

from __future__ import annotations

import base64
from typing import Annotated, Literal

import msgspec

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.errors import DeadLetterNotFoundError
from fieldbrook.gateway.management.framework.binding import RowLimit, Sfid, Text
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.storage.project.dead_letters import LetterFilter, LetterGroup, NumberedDeadLetter

Reason = Annotated[str, msgspec.Meta(max_length=4_096)]
Version = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]


class SelectLetters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters for dead letters: the exact reason, the applet and its version, handler, and type."""

    reason: Reason = ""
    applet_id: Sfid | None = msgspec.field(name="appletID", default=None)
    handler: Text = ""
    event_type: Text = msgspec.field(name="eventType", default="")
    version: Version | None = None

    @property
    def filter(self) -> LetterFilter:
        """Return the filter; it accepts all letters if no field is given."""
        return LetterFilter(
            self.reason or None,
            self.applet_id or None,
            self.handler or None,
            self.event_type or None,
            self.version,
        )


class ReadLetters(SelectLetters, frozen=True, kw_only=True):
    """A page of dead letters, newest first, with numbers below `before`.

    With `groupBy` the letters are counted by reason, applet and handler instead.
    """

    before: Sfid | None = None
    limit: RowLimit = 100
    group_by: Literal["reason"] | None = msgspec.field(name="groupBy", default=None)


class DeadLetterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter without its payload; `size` is that of the payload in bytes.

    `appletVersion` is the version that failed, absent in letters of early versions of the node.
    """

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
    applet_id: str = msgspec.field(name="appletID")
    version: int | msgspec.UnsetType = msgspec.field(name="appletVersion", default=msgspec.UNSET)


class WholeDeadLetter(DeadLetterRow, frozen=True, kw_only=True):
    """A dead letter with its payload in base64."""

    payload: str


class DeadLetterList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of dead letters, newest first; `total` counts all letters of the project.

    `next` is the `before` of the following page; it is empty when no letter is left.
    """

    data: list[DeadLetterRow]
    total: int
    following: str = msgspec.field(name="next")


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters with the same reason, applet and handler, and when they failed."""

    reason: str
    handler: str
    applet_name: str = msgspec.field(name="appletName")
    applet_id: str = msgspec.field(name="appletID")
    count: int
    oldest: str
    newest: str


class DeadLetterGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The largest groups of dead letters; `total` counts all groups."""

    groups: list[DeadLetterGroup]
    total: int


async def read_letters(call: Call[None, ReadLetters]) -> DeadLetterList | DeadLetterGroups:
    """Dead letters without their payloads, newest first, or with `groupBy=reason` how many there
    are of each reason, applet and handler."""
    query, wanted = call.query, call.query.filter
    store = await call.context.flushed_store(own_project(call).project_id)
    if query.group_by is not None:
        groups = await call.search(lambda: store.dead_letter_groups(wanted)) if store else []
        shown = [_group(group) for group in groups[: query.limit]]
        return DeadLetterGroups(groups=shown, total=len(groups))
    if store is None:
        return DeadLetterList(data=[], total=0, following="")
    letters, total = await call.search(
        lambda: store.dead_letters(query.before or None, query.limit, wanted)
    )
    return DeadLetterList(
        data=[letter_row(letter) for letter in letters],
        total=total,
        following=str(letters[-1].number) if len(letters) == query.limit else "",
    )


async def read_letter(call: Call[None, None]) -> WholeDeadLetter:
    """One dead letter with its payload."""
    store = await call.context.flushed_store(own_project(call).project_id)
    number = call.id("letterID")
    letter = store.dead_letter(number) if store else None
    if letter is None:
        raise DeadLetterNotFoundError(letter=number)
    return WholeDeadLetter(
        **msgspec.structs.asdict(letter_row(NumberedDeadLetter(number, letter))),
        payload=base64.b64encode(letter.payload).decode(),
    )


def letter_row(numbered: NumberedDeadLetter) -> DeadLetterRow:
    """Make the view of a dead letter."""
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
        applet_id=str(letter.applet_id),
        version=letter.version or msgspec.UNSET,
    )


def _group(group: LetterGroup) -> DeadLetterGroup:
    return DeadLetterGroup(
        reason=group.reason,
        handler=group.handler,
        applet_name=group.applet_name,
        applet_id=str(group.applet_id),
        count=group.letters,
        oldest=rfc3339(group.oldest),
        newest=rfc3339(group.newest),
    )


ROUTES: tuple[Route, ...] = (
    Route("GET", "/dead_letter/{projectName}", "ListDeadLetters", read_letters),
    Route("GET", "/dead_letter/{projectName}/{letterID}", "GetDeadLetter", read_letter),
)
