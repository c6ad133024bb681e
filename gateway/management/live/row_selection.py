"""Row selection: chooses the rows of a message if there are more than it may have."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from fieldbrook.gateway.management.live.messages import ROWS_LIMIT

T = TypeVar("T")


class RowSelection(Generic[T]):
    """Selects the newest failed rows, and fills the rest of a message with the newest other rows.

    Call `offer` with rows in ascending order of their `place`.
    """

    def __init__(self, limit: int = ROWS_LIMIT) -> None:
        self._limit = limit
        self._failed: deque[tuple[int, T]] = deque(maxlen=limit)
        self._others: deque[tuple[int, T]] = deque(maxlen=limit)

    def offer(self, place: int, row: T, *, failed: bool) -> None:
        """Consider a row."""
        (self._failed if failed else self._others).append((place, row))

    def chosen(self) -> list[tuple[int, T]]:
        """Return the rows to show with their places, oldest first."""
        room = self._limit - len(self._failed)
        others = list(self._others)[-room:] if room else []
        return sorted([*self._failed, *others], key=lambda one: one[0])


def last_without(indexes: Iterable[int], excluded: Iterable[int], limit: int) -> list[int]:
    """Return the highest `limit` indexes that are not excluded, in ascending order.

    Args:
        indexes: in descending order.
    """
    left_out, found = frozenset(excluded), list[int]()
    for index in indexes:
        if index not in left_out:
            found.append(index)
            if len(found) == limit:
                break
    return found[::-1]
