"""The leased nonces of one account, and the lock with which one project at a time uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from fieldbrook.storage.chain.transactions import LEASED, Transaction

_DROPPED_KEPT, _DROPPED_KEPT_BYTES = 1_024, 4 << 20  # limits of the dropped leases of an account
_LAGS_MS = 60_000  # how long the nonce count of an endpoint may lag behind that of another one


class Account:
    """The nonces of one address.

    Attributes:
        open: open leases by call key, in the order of their nonces.
        dropped: dropped leases by call key. A new run of the same event may reuse one.
        busy: whether a project holds the lock of the account.
    """

    def __init__(self) -> None:
        self.open: dict[bytes, Transaction] = {}
        self.dropped: dict[bytes, Transaction] = {}
        self.busy = False
        self._dropped_bytes = 0
        # The first nonce above the committed ones, and the time of its computation in Unix ms.
        self._used, self._used_at = 0, 0
        self._waiting: list[asyncio.Future[None]] = []

    def drop(self, row: Transaction) -> None:
        """Keep a dropped lease for the next run of its event; forget the oldest above the limit."""
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
            rows: the account's transactions that the node still follows. Transactions that it
                followed within the last `_LAGS_MS` count as well, because an endpoint may not
                have their blocks yet.
            now: Unix milliseconds.
        """
        used = max((row.nonce + 1 for row in rows if row.state != LEASED), default=0)
        if used >= self._used or now - self._used_at > _LAGS_MS:
            self._used, self._used_at = used, now
        return self._used

    def is_free_for(self, project_id: int) -> bool:
        """Return whether no project holds the lock and no other project has an open lease."""
        return not self.busy and all(row.project_id == project_id for row in self.open.values())

    async def becomes_free_for(self, project_id: int) -> None:
        """Wait until the account is free for a project."""
        while not self.is_free_for(project_id):
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(changed)
            await changed

    def changed(self) -> None:
        """Wake all waiting tasks. This method is no coroutine, so a cancellation cannot interrupt
        it."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)
