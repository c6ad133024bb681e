"""Limits of transactions: funds of the account, and the rate and spending of the project."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from fieldbrook.actors.project.traffic import window_of
from fieldbrook.chain.concurrency import gather_or_cancel
from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.transaction import TransactionRefusedError
from fieldbrook.chain.transactions.chain_state import ChainState
from fieldbrook.chain.transactions.signatures import unpaid
from fieldbrook.core.clock import Clock, now_ms
from fieldbrook.core.durations import format_duration
from fieldbrook.core.errors import ChainUnavailableError, StoreError
from fieldbrook.core.model import BLOCKCHAIN, Operator
from fieldbrook.observability import metrics
from fieldbrook.observability.health import LOW_FUNDS, ProcessHealth
from fieldbrook.storage.chain.transactions import (
    FINISHED,
    IN_BLOCK,
    Spending,
    Transaction,
    TransactionWriter,
)
from fieldbrook.storage.registry.service import RegistryReader

log = logging.getLogger(__name__)

UNFINISHED_LIMIT = 1_000  # unfinished transactions of one project
DAY_MS = 86_400_000
_NO_WINDOW = -1
_ENOUGH = 10  # an account that can pay for fewer transactions has low funds
_FUNDS_EVERY_S = 60.0
_FORGOTTEN_MS = 7 * DAY_MS  # an account that has sent nothing for so long is not checked
_ROWS_AT_START, _ROWS = 1_000, 100  # newest transactions that are searched for accounts
_ACCOUNTS = 50  # checked accounts: those that have sent transactions most recently


class Limits:
    """Checks a new transaction, and counts committed ones.

    The checks raise TransactionRefusedError with the reason.
    """

    def __init__(self, rows: TransactionWriter, reader: RegistryReader) -> None:
        self._rows = rows
        self._reader = reader

    def check_funds(self, operator: Operator, balance: int, cost: int) -> None:
        """Refuse a transaction that its account may not be able to pay."""
        reserved = _reserved(self._rows, operator.address)
        if balance - reserved < cost:
            others = f", {reserved} of them for unfinished transactions" if reserved else ""
            raise TransactionRefusedError(
                f"insufficient funds: operator {operator.name} ({operator.address}) has {balance} "
                f"wei{others}; this transaction may take {cost}"
            )

    def check_rate(self, project_id: int, leases: Sequence[Transaction], now: int) -> None:
        """Refuse a transaction above the traffic limit or above `UNFINISHED_LIMIT`."""
        unfinished = sum(
            1 for row in self._rows.unfinished.values() if row.project_id == project_id
        )
        if unfinished >= UNFINISHED_LIMIT:
            raise TransactionRefusedError(
                f"the project has {unfinished} unfinished transactions, the most that are allowed"
            )
        limits = self._reader.traffic_limits(project_id)
        limit = next((found for found in limits if found.api_type == BLOCKCHAIN), None)
        if limit is None:
            return
        spent = self._rows.spending(project_id)
        count = spent.window_count if spent.window == window_of(limit, now) else 0
        if count + len(leases) >= limit.threshold:
            duration = format_duration(limit.duration_ms)
            raise TransactionRefusedError(
                f"traffic limit: the project may send {limit.threshold} transactions per {duration}"
            )

    def check_spending(
        self, project_id: int, leases: Sequence[Transaction], cost: int, now: int
    ) -> None:
        """Refuse a transaction that may exceed the project's daily spending limit."""
        limit = self._reader.spending_limit(project_id)
        if limit is None:
            return
        spent = self._rows.spending(project_id)
        today = int(spent.day_wei) if spent.day == now // DAY_MS else 0
        today += sum(unpaid(row) for row in leases)
        if today + cost > limit:
            raise TransactionRefusedError(
                f"spending limit: the project may spend {limit} wei a day; {today} are spent, "
                f"and this may take {cost}"
            )

    def counters_after(self, rows: list[Transaction], now: int) -> dict[int, Spending]:
        """Return the counters of the projects after the commit of these transactions."""
        spent: dict[int, Spending] = {}
        for row in rows:
            project_id = row.project_id
            before = spent.get(project_id) or self._rows.spending(project_id)
            window = self._window(project_id, now)
            day = now // DAY_MS
            count = before.window_count if before.window == window else 0
            wei = int(before.day_wei) if before.day == day else 0
            spent[project_id] = msgspec.structs.replace(
                before,
                window=window,
                window_count=count + 1,
                day=day,
                day_wei=str(wei + unpaid(row)),
            )
        return spent

    def _window(self, project_id: int, now: int) -> int:
        try:
            limits = self._reader.traffic_limits(project_id)
        except StoreError:  # losing a count is better than losing a transaction
            return _NO_WINDOW
        limit = next((found for found in limits if found.api_type == BLOCKCHAIN), None)
        return _NO_WINDOW if limit is None else window_of(limit, now)


class FundsWatch:
    """Reports accounts with low funds, as a health condition and as a metric.

    Args:
        state: reads the balances.
        rows: the stored transactions of the chain.
        health: receives the condition.
        clock: returns Unix milliseconds.
    """

    def __init__(
        self,
        state: ChainState,
        rows: TransactionWriter,
        health: ProcessHealth,
        clock: Clock = now_ms,
    ) -> None:
        self._state = state
        self._rows = rows
        self._health = health
        self._clock = clock
        self._newest: dict[str, Transaction] = {}  # account: its newest transaction
        self._look_at = _ROWS_AT_START

    async def run(self) -> None:
        """Check the funds every `_FUNDS_EVERY_S` seconds, until cancelled."""
        while True:
            try:
                await self.check()
            except (ChainUnavailableError, RpcError) as error:
                # Another health condition reports endpoints that fail. Keep the last result.
                log.debug("balances of operators cannot be read: %s", error)
            except StoreError as error:
                log.error("balances of operators cannot be checked: %s", error)
            await asyncio.sleep(_FUNDS_EVERY_S)

    async def check(self) -> None:
        """Compare the balance of each account with the cost of its newest transaction.

        Raises:
            ChainUnavailableError, RpcError: a balance cannot be read.
            StoreError: the transactions cannot be read.
        """
        accounts = self._accounts()
        balances = await gather_or_cancel(*(self._state.balance(row.sender) for row in accounts))
        low = []
        for row, balance in zip(accounts, balances, strict=True):
            free, cost = balance - _reserved(self._rows, row.sender), unpaid(row)
            if free < _ENOUGH * cost:
                low.append((max(0, free) // max(1, cost), free, row))
        metrics.put(metrics.CHAIN_ACCOUNTS_LOW, len(low))
        if not low:
            self._health.clear(LOW_FUNDS)
            return
        count, free, row = min(low, key=lambda found: found[:2])
        others = f"; {len(low) - 1} other accounts have low funds, too" if len(low) > 1 else ""
        self._health.raise_(
            LOW_FUNDS,
            f"operator {row.operator_name} ({row.sender}) has {free} wei, enough for {count} more "
            f"transactions like its last one{others}",
        )

    def _accounts(self) -> list[Transaction]:
        """Return the newest transaction of each account that has sent any recently."""
        for row in reversed(self._rows.page(self._look_at).rows):
            self._newest.pop(row.sender, None)
            self._newest[row.sender] = row
        self._look_at = _ROWS
        since = self._clock() - _FORGOTTEN_MS
        kept = [(s, row) for s, row in self._newest.items() if row.created_at > since]
        self._newest = dict(kept[-_ACCOUNTS:])
        return list(self._newest.values())


def _reserved(rows: TransactionWriter, address: str) -> int:
    """Return the maximum total cost of an account's transactions that no block includes yet, in
    wei."""
    return sum(
        unpaid(row)
        for row in rows.unfinished.values()
        if row.sender == address and row.state not in (IN_BLOCK, *FINISHED)
    )
