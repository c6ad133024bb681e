"""Nonce gaps: compares the used nonces of accounts with the chain's counts.

The chain counts fewer nonces than the node has used if an endpoint lags behind, or if the chain has
lost transactions although their blocks counted as final. In the second case, the later transactions
of the account wait for a nonce that no transaction has any more, and the lost transactions must be
sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from fieldbrook.chain.transactions.broadcast.finality import LAGS_MS
from fieldbrook.chain.transactions.broadcast.outcomes import Outcomes
from fieldbrook.chain.transactions.broadcast.rows import Rows
from fieldbrook.core.clock import Clock
from fieldbrook.storage.chain.transactions import INIT, PENDING, Transaction

_SEARCHED_ROWS = 20_000
# Finished transactions that one search looks up: those with the lowest nonces, because the chain
# must include these first.
_LOOKED_UP = 64


class Counts:
    """The chain's nonce counts of all accounts, compared with the node's transactions.

    Attributes:
        behind: accounts of which the chain counts fewer nonces than the node has used, with both
            numbers (counted, used).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, int] = {}
        self.behind: dict[str, tuple[int, int]] = {}

    def compare(self, sender: str, rows: Sequence[Transaction], counted: int) -> int:
        """Compare an account's transactions with the chain's count.

        Args:
            sender: the account.
            rows: the account's unfinished and watched transactions.
            counted: how many nonces of the account the chain counts.

        Returns:
            How long the chain has counted fewer nonces than were used, in ms; 0 if it does not.
        """
        waiting = [row for row in rows if row.state in (INIT, PENDING)]
        used = [row.nonce + 1 for row in rows if row not in waiting or row.vanished]
        used += [min(row.nonce for row in waiting)] if waiting else []
        expected = max(used, default=0)
        if counted >= expected:
            self._since.pop(sender, None)
            self.behind.pop(sender, None)
            return 0
        now = self._clock()
        self.behind[sender] = counted, expected
        return now - self._since.setdefault(sender, now)

    def has_counted(self, row: Transaction) -> bool:
        """Return whether the last comparison found the nonce of a transaction counted."""
        counted, _ = self.behind.get(row.sender, (row.nonce + 1, 0))
        return row.nonce < counted

    def keep_only(self, senders: Collection[str]) -> None:
        """Forget all other accounts."""
        for sender in self.behind.keys() - set(senders):
            del self.behind[sender], self._since[sender]

    @property
    def missing(self) -> int:
        """How many used nonces the chain does not count, in all accounts together."""
        return sum(expected - counted for counted, expected in self.behind.values())

    def describe(self, senders: Collection[str]) -> str:
        """Describe the differences of some accounts, for the health condition."""
        return "; ".join(
            f"account {sender}: the chain counts {counted} nonces, the node has used {expected}"
            for sender, (counted, expected) in self.behind.items()
            if sender in senders
        )


class Gaps:
    """Finds accounts with nonce gaps, and sends lost transactions again.

    Args:
        rows: the stored transactions.
        outcomes: looks up receipts, and marks lost transactions to be sent again.
        clock: returns Unix milliseconds.

    Attributes:
        counts: the counts of all accounts.
        differing: accounts whose counts have differed for longer than an endpoint may lag.
        unfilled: accounts that wait for a nonce that no transaction of the node has.
    """

    def __init__(self, rows: Rows, outcomes: Outcomes, clock: Clock) -> None:
        self._rows = rows
        self._outcomes = outcomes
        self._clock = clock
        self._searched: dict[str, int] = {}  # account: last search for lost transactions, Unix ms
        self.counts = Counts(clock)
        self.differing: set[str] = set()
        self.unfilled: set[str] = set()

    def keep_only(self, senders: Collection[str]) -> None:
        """Forget all other accounts."""
        self.counts.keep_only(senders)
        self.differing.intersection_update(senders)

    async def compare(self, sender: str, counted: int) -> list[Transaction]:
        """Compare an account's nonces with the chain's count.

        If the chain counts fewer and no unfinished transaction has the missing nonce, search for
        finished transactions that the chain has lost, and mark them to be sent again.

        Returns:
            The transactions that wait for a nonce that no transaction of the node has. Empty if a
            transaction has the nonce, or if this is not known yet.
        """
        rows = self._rows.of(sender)
        behind_ms = self.counts.compare(sender, rows, counted)
        under_way = [row for row in rows if row.state in (INIT, PENDING)]
        fills = any(row.nonce == counted for row in under_way)
        if fills or sender not in self.counts.behind:
            self.unfilled.discard(sender)
        if sender not in self.counts.behind:
            self.differing.discard(sender)
            return []
        if behind_ms < LAGS_MS and not (fills and any(row.vanished for row in under_way)):
            return []
        self.differing.add(sender)
        now = self._clock()
        if fills or now - self._searched.get(sender, 0) < 2 * LAGS_MS:
            return []
        self._searched[sender] = now
        finished = self._rows.stored.finished_of
        lost = await asyncio.to_thread(finished, sender, counted, _SEARCHED_ROWS)
        first = sorted(lost, key=lambda row: row.nonce)[:_LOOKED_UP]
        gone = [row for row in first if await self._outcomes.receipt_anywhere(row) is None]
        for row in gone:
            self._outcomes.vanish(row)
        if under_way and not gone:
            self.unfilled.add(sender)
            return under_way
        return []
