"""The store of transactions: removed leases, pages, counters, and limits."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest
from msgspec.structs import replace

from fieldbrook.storage.chain.transactions import (
    CONFIRMED,
    INIT,
    Attempt,
    Spending,
    Transaction,
    TransactionReader,
    TransactionWriter,
    parse_name,
)
from fieldbrook.storage.lmdb.environment import open_environment


@pytest.fixture
def environment(tmp_path: Path) -> lmdb.Environment:
    return open_environment(tmp_path / "chain", map_size=64 << 20)


def lease(rows: TransactionWriter, number: int, project_id: int = 7) -> Transaction:
    made = Transaction(
        transaction_id=rows.new_id(),
        chain_id=5,
        project_id=project_id,
        call_key=b"key%d" % number,
        event_id=f"event-{number}",
        operator_id=1,
        operator_name="default",
        sender="0x" + "11" * 20,
        to="0x" + "22" * 20,
        value="1",
        data=b"",
        gas=21_000,
        attempts=[Attempt(f"0x{number:064x}", b"raw", number, 1, 1, 0)],
        event_type="TX_RESULT",
        created_at=1,
        updated_at=1,
    )
    rows.put(made)
    return made


def test_a_lease_is_seen_by_nobody_and_leaves_nothing_when_it_is_dropped(
    environment: lmdb.Environment,
) -> None:
    rows = TransactionWriter(environment)
    made = lease(rows, 1)
    assert rows.with_call(b"key1") == made
    assert rows.page(10).rows == []
    rows.drop([made])
    assert rows.with_call(b"key1") is None
    assert rows.all() == []
    assert rows.unfinished == {}
    assert TransactionWriter(environment).new_id() > made.transaction_id


def test_pages_go_backwards_through_one_project_or_all_and_filter(
    environment: lmdb.Environment,
) -> None:
    rows = TransactionWriter(environment)
    made = [replace(lease(rows, n, 7 + n % 2), state=INIT) for n in range(10)]
    rows.commit(made, {7: Spending(confirmed=1)})
    first = rows.page(4)
    assert first.rows == made[:5:-1]
    assert rows.page(99, first.before).rows == made[5::-1]
    assert rows.page(99, 0, 8).rows == made[::-1][::2]
    assert rows.page(2, made[8].transaction_id, 7).rows == [made[6], made[4]]
    assert rows.page(9, matches=lambda row: row.event_id == "event-3").rows == [made[3]]
    assert rows.spending(7).confirmed == 1
    assert rows.spending(8) == Spending()
    reads = TransactionReader(environment)
    assert reads.read_unfinished() == made


def test_old_transactions_go_and_those_under_way_stay(environment: lmdb.Environment) -> None:
    rows = TransactionWriter(environment, rows_limit=5)
    waiting = replace(lease(rows, 0), state=INIT)
    rows.put(waiting)
    for number in range(1, 30):
        done = replace(lease(rows, number), state=CONFIRMED, reported=True)
        rows.finish(done, Spending(confirmed=number))
    kept = rows.all()
    assert kept[0] == waiting
    assert len(kept) <= 10
    assert kept[-1].event_id == "event-29"
    assert rows.with_call(b"key1") is None
    assert rows.spending(7).confirmed == 29


def test_what_was_not_finished_or_not_told_is_known_again(environment: lmdb.Environment) -> None:
    rows = TransactionWriter(environment)
    waiting, told, untold = (lease(rows, n) for n in range(3))
    rows.finish(replace(told, state=CONFIRMED, reported=True), Spending())
    rows.finish(replace(untold, state=CONFIRMED), Spending())
    rows.park(True)
    again = TransactionWriter(environment)
    assert set(again.unfinished) == {waiting.transaction_id, untold.transaction_id}
    assert again.parked
    again.park(False)
    assert not again.parked


@pytest.mark.parametrize(
    "name", ["", "5", "5-", "-5", "5-x", "x-5", "5-5-5", "\u0665-5", "5-" + "9" * 20]
)
def test_what_is_no_name_of_a_transaction_is_none(name: str) -> None:
    assert parse_name(name) is None


def test_a_name_is_the_chain_and_the_transaction() -> None:
    assert parse_name("31337-244027140112384") == (31337, 244027140112384)


def test_the_newest_transactions_are_found_by_the_beginning_of_a_hash(
    environment: lmdb.Environment,
) -> None:
    rows, forever = TransactionWriter(environment), float("inf")
    made = [lease(rows, 0xA0 + number) for number in range(7)]
    start = "0x" + "0" * 62
    assert rows.with_hash(start, {7}, 100, forever) == [], "leases are seen by nobody"
    rows.put(*(replace(row, state=INIT) for row in made))
    found = [tx_hash for _, tx_hash in rows.with_hash(start, {7}, 100, forever)]
    assert found == [f"0x{0xA0 + number:064x}" for number in (6, 5, 4, 3, 2)]
    assert [row.event_id for row, _ in rows.with_hash(f"0x{0xA0:064x}", {7}, 100, forever)] == [
        f"event-{0xA0}"
    ]
    assert rows.with_hash(f"0x{0xA0:064x}", {7}, 3, forever) == [], "only the newest are read"
    assert rows.with_hash(start, {8}, 100, forever) == []
    assert rows.with_hash(start, {7}, 100, 0.0) == []
