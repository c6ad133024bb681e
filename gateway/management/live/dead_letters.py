"""Reads the dead letters of a project as they are added and removed."""

from __future__ import annotations

from collections.abc import Callable

from fieldbrook.gateway.management.framework.context import ProjectStoreReader
from fieldbrook.gateway.management.framework.workers import SharedPool
from fieldbrook.gateway.management.live.events import read_place
from fieldbrook.gateway.management.live.messages import ROWS_LIMIT, Rows
from fieldbrook.gateway.management.routes.events.dead_letters import letter_row
from fieldbrook.storage.project.dead_letters import NumberedDeadLetter


class DeadLettersReader:
    """Reads the dead letters of a project. Places are their numbers.

    The first message, and one after each change, has the number of all letters in `stored`.

    Args:
        store: returns the project's store; None if there is none.
        searches: the thread pool in which the store is read.
        account_id: the project's account, whose share of the pool is used.
    """

    def __init__(
        self,
        store: Callable[[], ProjectStoreReader | None],
        searches: SharedPool,
        account_id: int,
    ) -> None:
        self._store, self._searches, self._account_id = store, searches, account_id
        self._newest = self._stored = 0

    async def begin(self) -> None:
        """See `channels.Reader`."""
        self._newest, self._stored = self._state()

    async def first(self, after: str) -> Rows | None:
        """See `channels.Reader`."""
        return await self._since(read_place(after) if after else self._newest)

    async def read(self) -> Rows | None:
        """See `channels.Reader`."""
        before = self._newest, self._stored
        self._newest, self._stored = self._state()
        if before == (self._newest, self._stored):
            return None
        return await self._since(before[0])

    def _state(self) -> tuple[int, int]:
        """Return the number of the newest letter, and the number of all letters."""
        store = self._store()
        newest, stored = store.newest_dead_letter() if store else (0, 0)
        return max(self._newest, newest), stored

    async def _since(self, after: int) -> Rows:
        letters: list[NumberedDeadLetter] = []
        store = self._store()
        if store is not None and self._newest > after:
            # Letters contain their payloads, which may be large.
            found, _ = await self._searches.run(
                self._account_id, lambda: store.dead_letters(self._newest + 1, ROWS_LIMIT)
            )
            letters = [letter for letter in found if letter.number > after]
        # Numbers are assigned without gaps, so this also counts removed letters.
        total = max(self._newest - after, len(letters))
        return Rows(
            rows=[letter_row(letter) for letter in reversed(letters)],
            total=total,
            left_out=total - len(letters),
            place=str(self._newest),
            stored=self._stored,
        )
