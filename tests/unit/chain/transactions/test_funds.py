"""Accounts whose funds will soon be used up are reported, without a chain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fieldbrook.chain.transactions.chain_state import ChainState
from fieldbrook.chain.transactions.limits import DAY_MS, FundsWatch
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.observability import metrics
from fieldbrook.observability.health import LOW_FUNDS, ProcessHealth
from fieldbrook.storage.chain.transactions import (
    CONFIRMED,
    LEASED,
    PENDING,
    Attempt,
    Transaction,
    TransactionWriter,
)
from fieldbrook.storage.lmdb.environment import open_environment
from tests.unit.chain.transactions.broadcast.test_finality import ROW
from tests.unit.chain.transactions.endpoint import AnyEndpoint
from tests.unit.chain.transactions.test_nonces import CHAIN

NOW = 1_700_000_000_000
COST = 21_000 * 5 + 100
POOR, RICH = "0x" + "aa" * 20, "0x" + "bb" * 20


class Balances(AnyEndpoint):
    """A chain with balances of accounts; a query for an account without a balance fails."""

    def __init__(self, **wei: int) -> None:
        self.wei = wei
        self.asked: list[str] = []

    async def answer(self, method: str, params: list[Any]) -> Any:
        assert (method, params[1]) == ("eth_getBalance", "latest")
        self.asked.append(params[0])
        if params[0] not in self.wei:
            raise ChainUnavailableError(chain=1, reason="no answer")
        return hex(self.wei[params[0]])


class Bench:
    def __init__(self, rows: TransactionWriter) -> None:
        self.rows = rows
        self.rpc = Balances()
        self.health = ProcessHealth()
        self.now = NOW
        self.watch = FundsWatch(
            ChainState(CHAIN, self.rpc), rows, self.health, clock=lambda: self.now
        )

    def send(self, sender: str, state: str = CONFIRMED, **fields: Any) -> Transaction:
        """Store a transaction that costs `COST` at most."""
        number = len(self.rows.all()) + 1
        row = msgspec.structs.replace(
            ROW,
            transaction_id=number,
            call_key=number.to_bytes(44, "big"),
            sender=sender,
            operator_name=f"of {sender[:4]}",
            value="100",
            attempts=[Attempt("0x", b"", number, 5, 1, self.now)],
            state=state,
            reported=True,
            created_at=self.now,
            **fields,
        )
        self.rows.put(row)
        return row

    def look(self, **wei: int) -> float:
        """Check the funds; return how many accounts have little."""
        self.rpc.wei = wei
        asyncio.run(self.watch.check())
        return metrics.here.row[metrics.CHAIN_ACCOUNTS_LOW]

    @property
    def detail(self) -> str:
        return self.health._details[LOW_FUNDS]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    environment = open_environment(tmp_path / "chain", map_size=64 << 20)
    yield Bench(TransactionWriter(environment))
    environment.close()


def test_nobody_is_asked_for_while_nothing_was_sent(bench: Bench) -> None:
    bench.send(POOR, state=LEASED)
    assert bench.look() == 0
    assert bench.rpc.asked == []


def test_an_account_that_can_pay_ten_more_has_enough(bench: Bench) -> None:
    bench.send(POOR)
    assert bench.look(**{POOR: 10 * COST}) == 0
    assert LOW_FUNDS not in bench.health
    assert bench.look(**{POOR: 10 * COST - 1}) == 1
    expected = (
        f"operator of 0xaa ({POOR}) has {10 * COST - 1} wei, enough for 9 more transactions like "
        "its last one"
    )
    assert bench.detail == expected
    assert bench.look(**{POOR: 10**18}) == 0
    assert LOW_FUNDS not in bench.health


def test_what_transactions_under_way_may_cost_is_no_more_there(bench: Bench) -> None:
    bench.send(POOR, state=PENDING)
    bench.send(POOR, state=PENDING)
    assert bench.look(**{POOR: 12 * COST}) == 0
    assert bench.look(**{POOR: 11 * COST}) == 1
    assert "enough for 9 more" in bench.detail


def test_the_account_with_the_least_is_named_and_the_others_are_counted(bench: Bench) -> None:
    bench.send(POOR)
    bench.send(RICH)
    assert bench.look(**{POOR: 5 * COST, RICH: 2 * COST}) == 2
    assert "of 0xbb" in bench.detail
    assert bench.detail.endswith("; 1 other accounts have low funds, too")


def test_the_newest_transaction_of_an_account_says_what_one_costs(bench: Bench) -> None:
    bench.send(POOR)
    bench.send(POOR, gas=2_100_000)
    assert bench.look(**{POOR: 10 * COST}) == 1
    bench.send(POOR)
    assert bench.look(**{POOR: 10 * COST}) == 0


def test_an_account_that_sends_nothing_for_a_week_is_forgotten(bench: Bench) -> None:
    bench.send(POOR)
    assert bench.look(**{POOR: 0}) == 1
    bench.now += 7 * DAY_MS
    assert bench.look() == 0
    assert LOW_FUNDS not in bench.health


def test_accounts_of_older_transactions_are_known_after_the_start(bench: Bench) -> None:
    bench.send(POOR)
    for _ in range(150):
        bench.send(RICH)
    for _ in range(2):
        assert bench.look(**{POOR: 0, RICH: 10**18}) == 1


def test_what_was_found_stays_while_no_endpoint_answers(bench: Bench) -> None:
    bench.send(POOR)
    assert bench.look(**{POOR: 0}) == 1
    with pytest.raises(ChainUnavailableError):
        bench.look()
    assert LOW_FUNDS in bench.health
    assert metrics.here.row[metrics.CHAIN_ACCOUNTS_LOW] == 1


def test_a_chain_without_fees_never_has_too_little(bench: Bench) -> None:
    bench.send(POOR, gas=0)
    bench.rows.put(msgspec.structs.replace(bench.rows.all()[0], value="0"))
    assert bench.look(**{POOR: 0}) == 0
