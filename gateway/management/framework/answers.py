"""Common parts of answers: pages of lists, the times of a row, and JSON as it was stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypedDict, TypeVar, cast

import msgspec

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.model import Record
from fieldbrook.gateway.management.framework.binding import Paging, json_key

T = TypeVar("T")
R = TypeVar("R", bound=Record)


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list; `total` counts all matching rows."""

    data: list[T]
    total: int


class Timed(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A row with the times of its creation and of its last change, RFC 3339.

    A subclass must not be `kw_only` itself, so that its own fields come before the times.
    """

    created_at: str
    updated_at: str


class Times(TypedDict):
    """The fields of `Timed`."""

    created_at: str
    updated_at: str


def times(*rows: Record) -> Times:
    """Return the earliest creation and the latest change of the rows."""
    return {
        "created_at": rfc3339(min(row.created_at for row in rows)),
        "updated_at": rfc3339(max(row.updated_at for row in rows)),
    }


def page(rows: Iterable[R], paging: Paging, *, by_creation: bool = False) -> list[R]:
    """Return the requested page of a list, latest change first.

    With `by_creation` the row that was created last comes first, as in the lists of the early
    interface.
    """
    # Rows come in the order of their creation. Reversing them before the stable sort puts the
    # newer one of two rows with the same millisecond first.
    latest = list(rows)[::-1]
    ordered = sorted(latest, key=_by_creation if by_creation else _by_change, reverse=True)
    if paging.size < 0:
        return ordered[paging.offset :]
    return ordered[paging.offset : paging.offset + paging.size]


def as_stored(value: bytes, kind: type[T]) -> T:
    """Return stored JSON of a known form, as an answer or a part of one.

    It is sent unchanged; `kind` only describes it.
    """
    return cast(T, msgspec.Raw(value))


def _by_change(row: Record) -> tuple[int, int]:
    return row.updated_at, row.created_at


def _by_creation(row: Record) -> int:
    return row.created_at
