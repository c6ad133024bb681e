"""Changes of stored transactions."""

from __future__ import annotations

from typing import Any

import msgspec

from fieldbrook.core.clock import Clock
from fieldbrook.storage.chain.transactions import (
    FINISHED,
    LEASED,
    Transaction,
    TransactionWriter,
)


class Rows:
    """The transactions of one chain; every change stores the time of the change."""

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

    def current(self, row: Transaction) -> Transaction:
        """Return an unfinished transaction as it is stored now."""
        return self.stored.unfinished[row.transaction_id]

    def update(self, row: Transaction, **fields: Any) -> Transaction:
        """Store a transaction with changed fields, unless nothing differs."""
        changed = msgspec.structs.replace(row, **fields)
        if changed == row:
            return row
        changed = msgspec.structs.replace(changed, updated_at=self._clock())
        self.stored.put(changed)
        return changed
