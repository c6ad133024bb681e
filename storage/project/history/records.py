"""Records of events in the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

SOURCES = {0: "http", 16: "mqtt", 32: "cron", 48: "api", 64: "chain"}
DUPLICATE = 128
TRACED = 256
_SOURCE_BITS = 112

OK, FAILED, UNHANDLED, DUPLICATED = "ok", "failed", "unhandled", "duplicate"


class Handled(msgspec.Struct, array_like=True, frozen=True):
    """The result of one handler: its instance, its return code or -1, and why it failed."""

    instance_id: int
    code: int
    reason: str

    @property
    def has_failed(self) -> bool:
        """Whether the run failed, or the handler reports a failure by a negative code."""
        return bool(self.reason) or self.code < 0


class RecordedTarget(msgspec.Struct, array_like=True, frozen=True):
    """The route of one result: the strategy, and the applet with its version."""

    strategy_id: int
    applet_id: int
    version: int


class EventRecord(msgspec.Struct, array_like=True, frozen=True):
    """The history record of one event. Times are Unix milliseconds.

    `results` is empty when no strategy matched. `refusal` is the name of the error when the
    node itself failed to handle the event. `targets` has one entry for each result. `source` is a
    name of `SOURCES`. `again` marks a duplicate, which did not run.
    """

    event_id: str
    event_type: str
    publisher_id: int
    size: int
    received_at: int
    handled_at: int
    results: list[Handled]
    refusal: str = ""
    flags: int = 0
    targets: list[RecordedTarget] = []

    @property
    def source(self) -> str:
        """The name of the interface by which the event arrived, or ""."""
        return SOURCES.get(self.flags & _SOURCE_BITS, "")

    @property
    def is_duplicate(self) -> bool:
        """Whether the event was a duplicate of a handled one."""
        return bool(self.flags & DUPLICATE)

    @property
    def is_traced(self) -> bool:
        """Whether the host calls of the event were recorded. The ring of traces may have dropped
        them since."""
        return bool(self.flags & TRACED)

    @property
    def outcome(self) -> str:
        """The outcome of the event.

        `duplicate`: the event did not run again; its result is the stored one. `failed`: a handler
            failed or
        returned a negative code, or the node could not handle it. `unhandled`: no strategy matched
        its type. `ok`: all handlers returned 0 or more.
        """
        if self.is_duplicate:
            return DUPLICATED
        if self.refusal or any(part.has_failed for part in self.results):
            return FAILED
        return OK if self.results else UNHANDLED


RecordTuple = tuple[
    str, str, int, int, int, int, Sequence[Any], str, int, Sequence[tuple[int, int, int]]
]
"""An `EventRecord` as a plain tuple: encoded in the same way, but cheaper for the writer."""


def event_record(
    event: tuple[str, int, str, bytes, int, int, str],
    handled_at: int,
    result: Sequence[Any],
    flags: int = 0,
    targets: Sequence[tuple[int, int, int]] = (),
) -> RecordTuple:
    """Make the history record of an event.

    Args:
        event: type, publisher, id, payload, time of receipt, flags of its delivery and its
            name (`actors.wire.WireEvent`); the last two are not recorded.
        handled_at: Unix milliseconds.
        result: the answer to the event: one result per handler, or an error's name and
            details.
        flags: a key of `SOURCES`, plus `DUPLICATE` for a duplicate and `TRACED` with a trace.
        targets: one for each result, with the fields of `RecordedTarget`.
    """
    event_type, publisher_id, event_id, payload, received_at = event[:5]
    size = len(payload)
    refusal = ""
    if result and isinstance(result[0], str):
        refusal, result = result[0], ()
    return (
        *(event_id, event_type, publisher_id, size, received_at, handled_at),
        *(result, refusal, flags, targets),
    )


def replay_of(event_id: str) -> tuple[str, int]:
    """Split an event id into the original id and the number of the replay; 0 for the original."""
    origin, mark, number = event_id.rpartition("#r")
    return (origin, int(number)) if mark and number.isdecimal() else (event_id, 0)
