"""Limits of transactions: funds of the account, and the rate and spending of the project."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fieldbrook.actors.project.traffic import window_of
from fieldbrook.chain.transaction import TransactionRefusedError
from fieldbrook.chain.transactions.signatures import unpaid
from fieldbrook.core.durations import format_duration
from fieldbrook.core.errors import StoreError
from fieldbrook.core.model import BLOCKCHAIN, Operator
from fieldbrook.storage.chain.transactions import (
    FINISHED,
    IN_BLOCK,
    Spending,
    Transaction,
    TransactionWriter,
)
from fieldbrook.storage.registry.service import RegistryReader

UNFINISHED_LIMIT = 1_000  # unfinished transactions of one project
DAY_MS = 86_400_000
_NO_WINDOW = -1


class Limits:
    """Checks a new transaction, and counts committed ones.

    The checks raise TransactionRefusedError with the reason.
    """

    def __init__(self, rows: TransactionWriter, reader: RegistryReader) -> None:
        self._rows = rows
        self._reader = reader

    def check_funds(self, operator: Operator, balance: int, cost: int) -> None:
        """Refuse a transaction that its account may not be able to pay."""
        reserved = sum(
            unpaid(row)
            for row in self._rows.unfinished.values()
            if row.sender == operator.address and row.state not in (IN_BLOCK, *FINISHED)
        )
        if balance - reserved < cost:
            others = f", {reserved} of them for transactions under way" if reserved else ""
            raise TransactionRefusedError(
                f"insufficient funds: operator {operator.name} ({operator.address}) has {balance} "
                f"wei{others}; it may take {cost}"
            )

    def check_rate(self, project_id: int, leases: Sequence[Transaction], now: int) -> None:
        """Refuse a transaction above the traffic limit or the limit of unfinished ones."""
        unfinished = sum(
            1 for row in self._rows.unfinished.values() if row.project_id == project_id
        )
        if unfinished >= UNFINISHED_LIMIT:
            raise TransactionRefusedError(f"{unfinished} transactions of the project are under way")
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
        """Return the counters of projects as they will be after these commits."""
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
        except StoreError:  # a lost count does less harm than a lost transaction
            return _NO_WINDOW
        limit = next((found for found in limits if found.api_type == BLOCKCHAIN), None)
        return _NO_WINDOW if limit is None else window_of(limit, now)
