"""The stored transactions of a chain: selections, and updates with the time of the change."""

from __future__ import annotations

from typing import Any

import msgspec

from fieldbrook.core.clock import Clock
from fieldbrook.storage.chain.transactions import (
    FINISHED,
    IN_BLOCK,
    LEASED,
    Transaction,
    TransactionWriter,
)


class Rows:
    """The stored transactions of one chain. Every update also sets `updated_at`."""

    def __init__(self, stored: TransactionWriter, clock: Clock) -> None:
        self.stored = stored
        self._clock = clock

    def committed(self) -> list[Transaction]:
        """Return the unfinished transactions whose events are committed."""
        return [
            row
            for row in self.stored.unfinished.values()
            if row.state != LEASED and row.state not in FINISHED
        ]

    def included(self) -> list[Transaction]:
        """Return the transactions in blocks that are not final."""
        blocks = [row for row in self.stored.unfinished.values() if row.state == IN_BLOCK]
        return blocks + list(self.stored.watched.values())

    def current(self, row: Transaction) -> Transaction:
        """Return the current stored state of an unfinished or watched transaction."""
        known = self.stored.unfinished.get(row.transaction_id)
        return self.stored.watched[row.transaction_id] if known is None else known

    def of(self, sender: str) -> list[Transaction]:
        """Return the unfinished and the watched transactions of an account."""
        rows = {row.transaction_id: row for row in self.committed()} | self.stored.watched
        return [row for row in rows.values() if row.sender == sender]

    def update(self, row: Transaction, **fields: Any) -> Transaction:
        """Store a transaction with changed fields, and return it. Store nothing if none differs."""
        changed = msgspec.structs.replace(row, **fields)
        if changed == row:
            return row
        changed = msgspec.structs.replace(changed, updated_at=self._clock())
        self.stored.put(changed)
        return changed
