"""The nonces of one account: its leases, and who waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from fieldbrook.storage.chain.transactions import LEASED, Transaction

_DROPPED_KEPT, _DROPPED_KEPT_BYTES = 1_024, 4 << 20  # of the calls of an account
_LAGS_MS = 60_000  # how long an endpoint may not count nonces that another one has counted


class Account:
    """The nonces of one address.

    Attributes:
        open: leases by call key, in the order of their nonces.
        dropped: dropped leases that a new run may reuse, by call key.
        busy: a project has its turn.
    """

    def __init__(self) -> None:
        self.open: dict[bytes, Transaction] = {}
        self.dropped: dict[bytes, Transaction] = {}
        self.busy = False
        self._dropped_bytes = 0
        self._used, self._used_at = 0, 0  # the first nonce above the committed ones, and when
        self._waiting: list[asyncio.Future[None]] = []

    def drop(self, row: Transaction) -> None:
        """Keep a dropped lease for the next run of its event, instead of the oldest ones."""
        self.take_dropped(row.call_key)
        self.dropped[row.call_key] = row
        self._dropped_bytes += len(row.data)
        while len(self.dropped) > _DROPPED_KEPT or self._dropped_bytes > _DROPPED_KEPT_BYTES:
            self.take_dropped(next(iter(self.dropped)))

    def take_dropped(self, key: bytes) -> None:
        """Forget a dropped lease."""
        row = self.dropped.pop(key, None)
        self._dropped_bytes -= len(row.data) if row is not None else 0

    def first_unused(self, rows: Collection[Transaction], now: int) -> int:
        """Return the first nonce above those of committed transactions.

        Args:
            rows: the account's transactions that the node still follows. The nonce of one that it
                followed lately counts as well: an endpoint may not have its block yet.
            now: Unix milliseconds.
        """
        used = max((row.nonce + 1 for row in rows if row.state != LEASED), default=0)
        if used >= self._used or now - self._used_at > _LAGS_MS:
            self._used, self._used_at = used, now
        return self._used

    def is_free_for(self, project_id: int) -> bool:
        """Return whether no other project has its turn or a lease."""
        return not self.busy and all(row.project_id == project_id for row in self.open.values())

    async def becomes_free_for(self, project_id: int) -> None:
        """Wait until it is free for a project."""
        while not self.is_free_for(project_id):
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(changed)
            await changed

    def changed(self) -> None:
        """Wake those that wait. It is not a coroutine, so that no cancellation can prevent it."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)
