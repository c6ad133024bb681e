"""The handling of transactions that endpoints refuse, without a chain: decisions and times."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import lmdb
import msgspec
import pytest

from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.rpc.refusals import is_verdict
from fieldbrook.chain.transactions.broadcast import broadcaster
from fieldbrook.chain.transactions.broadcast.broadcaster import Broadcaster
from fieldbrook.chain.transactions.broadcast.finality import LAGS_MS
from fieldbrook.chain.transactions.nonces import Leases
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.observability.health import NONCES_DIFFER, STUCK_TRANSACTIONS, ProcessHealth
from fieldbrook.storage.chain.transactions import (
    CONFIRMED,
    FAILED,
    INIT,
    PENDING,
    Transaction,
    TransactionWriter,
)
from fieldbrook.storage.lmdb.environment import open_environment
from fieldbrook.storage.registry.service import RegistryReader
from tests.unit.chain.transactions.test_nonces import ADDRESS, CHAIN, VAULT, Registry, Rpc, wanted

FUNDS = "insufficient funds for gas * price + value"
NEVER = "exceeds block gas limit"
BLOCK_HASH = "0x" + "b1" * 32
REPRICE_MS = CHAIN.reprice_s * 1_000


class Endpoints(Rpc):
    """Endpoints that refuse a transaction with a given error text, or accept it."""

    def __init__(self) -> None:
        super().__init__()
        self.words: Callable[[str], str] = lambda _raw: ""
        self.elsewhere: Callable[[str], str] | None = None
        self.sent: list[str] = []
        self.known = False
        self.head = 5
        self.mined: dict[str, int] = {}  # the block of each hash
        self.hidden: set[str] = set()  # hashes whose receipts only the second endpoint has
        self.settled: int | None = None  # nonces in old blocks, if not the same as now
        self.looked_up = 0
        self.malformed: set[str] = set()  # methods

    async def answer(self, method: str, params: list[Any]) -> Any:
        if method in self.malformed:
            return []
        match method:
            case "eth_getTransactionCount" if self.settled is not None and params[1] != "latest":
                return hex(self.settled)
            case "eth_blockNumber":
                return hex(self.head)
            case "eth_getBlockByNumber" if params[0] != "latest":
                return {"number": params[0], "hash": BLOCK_HASH, "parentHash": BLOCK_HASH}
            case "eth_getTransactionByHash":
                self.looked_up += 1
                return {"hash": params[0]} if self.known else None
            case "eth_getTransactionReceipt":
                block = None if params[0] in self.hidden else self.mined.get(params[0])
                found = {"blockHash": BLOCK_HASH, "gasUsed": "0x5208", "status": "0x1"}
                return None if block is None else {**found, "blockNumber": hex(block)}
            case "eth_sendRawTransaction":
                self.sent.append(params[0])
                words = self.words(params[0])
                refused = RpcError(-32000, words)
                if words and self.elsewhere and not is_verdict(method, refused):
                    words = self.elsewhere(params[0])
                return self._taken(words)
        return await super().answer(method, params)

    async def ask_all(self, method: str, params: list[Any]) -> list[Any]:
        first = await self.answer(method, params)
        hidden, self.hidden = self.hidden, set()
        second = await self.answer(method, params)
        self.hidden = hidden
        return [first, second]

    def _taken(self, words: str) -> str:
        if words:
            raise RpcError(-32000, words)
        return "0x" + "00" * 32


class Bench:
    """A broadcaster with committed transactions, and a clock of its own."""

    def __init__(self, environment: lmdb.Environment) -> None:
        self.rpc = Endpoints()
        self.rows = TransactionWriter(environment)
        self.registry = Registry()
        self.now = 1_700_000_000_000
        reader = cast(RegistryReader, self.registry)
        self.leases = Leases(CHAIN, self.rpc, self.rows, reader, VAULT, lambda: self.now)
        self.health = ProcessHealth()
        self.sender = Broadcaster(
            *(CHAIN, self.rpc, self.rows, self.leases, lambda _row: None, lambda: False),
            *(self.health, lambda: self.now),
        )

    def use(self, **settings: Any) -> None:
        """Change the settings of the chain."""
        chain = msgspec.structs.replace(CHAIN, **settings)
        self.sender = Broadcaster(
            *(chain, self.rpc, self.rows, self.leases, lambda _row: None, lambda: False),
            *(self.health, lambda: self.now),
        )

    def commit(self, count: int, first: int = 0) -> list[int]:
        """Commit a number of transactions; return their ids."""

        async def made() -> list[int]:
            ids = []
            for number in range(first, first + count):
                key = bytes([number])
                row = await self.leases.prepare(7, wanted(key), ())
                await self.leases.settle(7, (key,))
                ids.append(row.transaction_id)
            return ids

        return asyncio.run(made())

    def round(self, after_ms: int = 0) -> None:
        self.now += after_ms
        asyncio.run(self.sender.round())

    def row(self, transaction_id: int) -> Transaction:
        found = self.rows.get(transaction_id)
        assert found is not None
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    environment = open_environment(tmp_path / "chain", map_size=64 << 20)
    yield Bench(environment)
    environment.close()


def test_a_refused_transaction_is_seen_rests_longer_each_time_and_goes_on_by_itself(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = bench.commit(2)
    bench.rpc.words = lambda _raw: FUNDS
    bench.round()
    assert (bench.row(first).state, bench.row(first).reason) == (INIT, FUNDS)
    assert bench.row(first).refused_at == bench.now
    assert STUCK_TRANSACTIONS in bench.health
    tries = []
    for tick in range(200):
        before = len(bench.rpc.sent)
        bench.round(100)
        if len(bench.rpc.sent) > before:
            tries.append(tick * 100)
    pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert pauses[:4] == [1_000, 2_000, 5_000, 5_000]
    assert set(bench.rpc.sent) == {"0x" + bench.row(first).last.raw.hex()}
    bench.rpc.words = lambda _raw: ""
    bench.round(5_000)
    assert [bench.row(n).state for n in (first, second)] == [PENDING, PENDING]
    assert not bench.row(first).refused_at
    assert STUCK_TRANSACTIONS not in bench.health
    assert caplog.text.count("blocks its account") == 1
    assert "an endpoint accepts it now" in caplog.text


def test_what_one_endpoint_refuses_another_may_take(bench: Bench) -> None:
    (only,) = bench.commit(1)
    bench.rpc.words = lambda _raw: NEVER
    bench.rpc.elsewhere = lambda _raw: ""
    bench.round()
    assert bench.row(only).state == PENDING


def test_what_no_block_can_have_gives_its_nonce_to_a_transfer_of_nothing_after_a_while(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = bench.commit(2)
    refused = "0x" + bench.row(first).last.raw.hex()
    bench.rpc.words = lambda raw: NEVER if raw == refused else ""
    for _ in range(4):
        bench.round(5_000)
    assert len(bench.row(first).attempts) == 1
    bench.round(REPRICE_MS)
    row = bench.row(first)
    assert (row.state, row.last.cancels, row.last.nonce) == (PENDING, True, row.attempts[0].nonce)
    assert row.last.why == f"refused for good: {NEVER}"
    bench.round()
    assert bench.row(second).state == PENDING
    assert "refused for good" in caplog.text


@pytest.mark.parametrize("words", [FUNDS, "txpool is full", "execution aborted"])
def test_what_may_pass_is_never_given_up(
    bench: Bench, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    (only,) = bench.commit(1)
    bench.rpc.words = lambda _raw: words
    for _ in range(10):
        bench.round(REPRICE_MS)
    assert (bench.row(only).state, len(bench.row(only).attempts)) == (INIT, 1)
    assert caplog.text.count("blocks its account") == 1


def test_what_an_endpoint_knows_is_not_given_up(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    (only,) = bench.commit(1)
    bench.rpc.words, bench.rpc.known = lambda _raw: NEVER, True
    for _ in range(10):
        bench.round(REPRICE_MS)
    assert len(bench.row(only).attempts) == 1
    assert caplog.text


def test_a_cancel_that_is_refused_too_waits(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    (only,) = bench.commit(1)
    bench.rpc.words = lambda _raw: "invalid chain id for signer"
    for _ in range(10):
        bench.round(REPRICE_MS)
    row = bench.row(only)
    assert [tried.cancels for tried in row.attempts] == [False, True]
    assert (row.state, bool(row.refused_at)) == (INIT, True)
    assert caplog.text


def test_a_retry_tries_at_once_and_pays_no_more_for_what_is_refused_whatever_it_pays(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    (only,) = bench.commit(1)
    bench.rpc.words = lambda _raw: FUNDS
    bench.round()
    bench.round()
    assert len(bench.rpc.sent) == 1
    bench.rpc.words = lambda _raw: ""
    asyncio.run(bench.sender.retry(only))
    bench.round()
    assert (bench.row(only).state, len(bench.row(only).attempts)) == (PENDING, 1)
    assert caplog.text


def test_a_key_that_is_gone_holds_up_its_own_account_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (only,) = bench.commit(1)
    other = bench.row(only)
    twin = bench.rows.new_id()
    elsewhere = {"transaction_id": twin, "call_key": b"other", "sender": "0x" + "ee" * 20}
    bench.rows.put(msgspec.structs.replace(other, **elsewhere))
    bench.round()
    monkeypatch.setattr(bench.registry, "operator", lambda _id: None)
    monkeypatch.setattr(bench.registry, "project", lambda _id: None)
    bench.rpc.sent.clear()
    bench.round(REPRICE_MS)
    assert "operator default was removed" in bench.row(only).reason
    assert "operator default was removed" in bench.row(twin).reason
    assert ADDRESS in caplog.text
    assert bench.row(only).state != FAILED


def test_two_with_one_nonce_do_not_outbid_each_other(
    bench: Bench,
) -> None:
    (only,) = bench.commit(1)
    first = bench.row(only)
    twin = bench.rows.new_id()
    bench.rows.put(msgspec.structs.replace(first, transaction_id=twin, call_key=b"twin"))
    bench.round()
    assert bench.row(only).state == PENDING
    assert (bench.row(twin).state, len(bench.row(twin).attempts)) == (INIT, 1)
    assert "another transaction of the node also has nonce 0" in bench.row(twin).reason


def test_a_transaction_that_was_final_and_is_lost_is_found_by_the_gap_and_sent_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = bench.commit(2)
    hash_ = bench.row(first).last.hash
    bench.round()
    bench.rpc.mined, bench.rpc.counted = {hash_: 5}, 1
    bench.round()
    assert (bench.row(first).state, bench.row(first).watched_since) == (CONFIRMED, 5)
    bench.rpc.head += CHAIN.finality
    bench.round()
    assert bench.row(first).watched_since == 0, "it is final"
    bench.rpc.mined, bench.rpc.counted = {}, 0
    bench.rpc.sent.clear()
    bench.round()
    assert NONCES_DIFFER not in bench.health, "the endpoint may only lag"
    bench.round(LAGS_MS)
    assert NONCES_DIFFER in bench.health
    bench.round()
    assert "0x" + bench.row(first).last.raw.hex() in bench.rpc.sent
    assert [bench.row(n).state for n in (first, second)] == [PENDING, PENDING]
    assert bench.row(first).vanished == 1
    bench.rpc.mined, bench.rpc.counted = {hash_: bench.rpc.head}, 1
    bench.round()
    assert bench.row(first).state == CONFIRMED
    bench.round()
    assert NONCES_DIFFER not in bench.health
    spent = bench.rows.spending(7)
    assert (spent.confirmed, spent.gas_used) == (1, 21_000)
    assert "has vanished; the node sends it again" in caplog.text


def test_a_gap_that_nothing_fills_is_told_at_the_first_transaction_that_waits(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.rpc.counted = 3
    (only,) = bench.commit(1)
    bench.rpc.counted = 1
    bench.round()
    bench.round(LAGS_MS)
    assert "no transaction of the node has nonce 1" in bench.row(only).reason
    assert bench.row(only).refused_at
    assert {NONCES_DIFFER, STUCK_TRANSACTIONS} <= {*bench.health._details}
    bench.rpc.counted = 3
    bench.round()
    assert NONCES_DIFFER not in bench.health
    assert "blocks its account" in caplog.text


def test_a_receipt_that_one_endpoint_lacks_is_asked_for_at_all_before_another_signature(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    (only,) = bench.commit(1)
    bench.round()
    hash_ = bench.row(only).last.hash
    bench.rpc.head, bench.rpc.counted = 500, 1
    bench.rpc.mined, bench.rpc.hidden = {hash_: 5}, {hash_}
    bench.round()
    assert (bench.row(only).state, len(bench.row(only).attempts)) == (CONFIRMED, 1)
    assert not caplog.text


def test_a_used_nonce_is_given_up_only_when_no_node_can_lag_behind_it(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.use(confirmations=0, finality=0)
    (only,) = bench.commit(1)
    bench.round()
    bench.rpc.counted, bench.rpc.settled = 1, 0  # in the newest blocks, and before them
    for _ in range(5):
        bench.round(LAGS_MS)
    assert len(bench.row(only).attempts) == 1
    bench.rpc.settled = 1
    bench.round()
    assert [tried.nonce for tried in bench.row(only).attempts] == [0, 1]
    assert "its new nonce is 1" in caplog.text


def test_a_used_nonce_whose_key_is_gone_stops_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = bench.commit(2)
    bench.rpc.head, bench.rpc.counted = 500, 1
    monkeypatch.setattr(bench.registry, "operator", lambda _id: None)
    monkeypatch.setattr(bench.registry, "project", lambda _id: None)
    for _ in range(2):
        bench.round()
    assert "operator default was removed" in bench.row(first).reason
    assert bench.row(first).refused_at
    assert bench.row(second).state == PENDING
    assert caplog.text.count("another one used its nonce") == 1


@pytest.mark.parametrize("method", ["eth_getTransactionReceipt", "eth_getTransactionCount"])
def test_answers_of_another_form_stop_a_round_and_no_more(bench: Bench, method: str) -> None:
    (only,) = bench.commit(1)
    bench.round()
    bench.rpc.head, bench.rpc.counted = 500, 1
    bench.rpc.mined = {bench.row(only).last.hash: 5}
    bench.rpc.malformed = {method}
    with pytest.raises(ChainUnavailableError, match="an endpoint answered"):
        bench.round()
    assert bench.row(only).state == PENDING
    bench.rpc.malformed = set()
    bench.round()
    assert bench.row(only).state == CONFIRMED


def test_a_lost_pool_is_noticed_at_the_next_transaction_and_all_are_sent_again(
    bench: Bench,
) -> None:
    ids = bench.commit(12)
    bench.rpc.known = True
    bench.round()
    bench.rpc.sent.clear()
    bench.rpc.known = False
    bench.round(2_000)
    assert not bench.rpc.sent, "no block has come"
    bench.rpc.head += 2
    bench.round(100)
    assert bench.rpc.sent == ["0x" + bench.row(n).last.raw.hex() for n in ids]


@pytest.mark.parametrize(
    ("words", "sent", "looked_up"),
    [("", 12, 0), ("already known", 1, 0), (FUNDS, 1, 1)],
    ids=["lost", "known", "unclear"],
)
def test_a_process_that_starts_sends_the_next_transaction_again_and_the_others_if_it_was_lost(
    bench: Bench, words: str, sent: int, looked_up: int
) -> None:
    ids = bench.commit(12)
    bench.round()
    bench.use()
    bench.rpc.sent.clear()
    bench.rpc.words = lambda _raw: words
    bench.rpc.known, bench.rpc.looked_up = True, 0
    bench.round(2_000)
    assert bench.rpc.sent == ["0x" + bench.row(n).last.raw.hex() for n in ids[:sent]]
    assert bench.rpc.looked_up == looked_up
    assert all(bench.row(n).state == PENDING for n in ids)
    bench.round(100)
    assert len(bench.rpc.sent) == sent


def test_those_behind_the_next_one_are_sent_together_and_their_first_refusal_alone_counts(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    ids = bench.commit(12)
    refused = {"0x" + bench.row(n).last.raw.hex() for n in ids[5:8]}
    bench.rpc.words = lambda raw: "nonce too high" if raw in refused else ""
    bench.round()
    states = [bench.row(n).state for n in ids]
    assert states == 5 * [PENDING] + 3 * [INIT] + [PENDING] + 3 * [INIT]
    assert [bool(bench.row(n).refused_at) for n in ids].index(True) == 5
    assert sum(bool(bench.row(n).refused_at) for n in ids) == 1
    assert len(bench.rpc.sent) == 1 + 8
    bench.rpc.words = lambda _raw: ""
    bench.rpc.known = True
    bench.round(100)
    assert len(bench.rpc.sent) == 9, "the account rests"
    bench.round(500)
    assert {bench.row(n).state for n in ids} == {PENDING}
    assert len(bench.rpc.sent) == 9 + 6
    assert caplog.text.count("blocks its account") == 1


def test_those_that_could_be_sent_are_recorded_when_the_endpoint_fails(bench: Bench) -> None:
    ids = bench.commit(4)
    lost = "0x" + bench.row(ids[2]).last.raw.hex()

    def words(raw: str) -> str:
        if raw == lost:
            raise ChainUnavailableError(chain=CHAIN.id, reason="no answer")
        return ""

    bench.rpc.words = words
    with pytest.raises(ChainUnavailableError):
        bench.round()
    assert [bench.row(n).state for n in ids] == [PENDING, PENDING, INIT, PENDING]
    assert not any(bench.row(n).refused_at for n in ids)


def test_a_turn_that_receipts_use_up_sends_the_next_transactions_nevertheless(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcaster, "_TURN_S", -1.0)
    ids = bench.commit(40)
    raw = ["0x" + bench.row(n).last.raw.hex() for n in ids]
    bench.rpc.mined = {bench.row(n).last.hash: 5 for n in ids[:20]}
    bench.rpc.counted, bench.rpc.known = 20, True
    bench.round()
    assert bench.rpc.sent == raw[20:29]
    assert [n for n in ids if bench.row(n).mined] == ids[:16]
    bench.round(100)
    assert bench.rpc.sent == raw[20:37]
    assert [n for n in ids if bench.row(n).mined] == ids[:20]
    bench.round(100)
    assert bench.rpc.sent == raw[20:]


def test_what_fails_of_sending_and_looking_up_does_not_stop_the_other(bench: Bench) -> None:
    ids = bench.commit(14)
    raw = ["0x" + bench.row(n).last.raw.hex() for n in ids]
    bench.rpc.counted, bench.rpc.known = 2, True
    bench.rpc.mined = {bench.row(n).last.hash: 5 for n in ids[:2]}
    bench.rpc.malformed = {"eth_getTransactionReceipt"}
    with pytest.raises(ChainUnavailableError):
        bench.round()
    assert bench.rpc.sent == raw[2:]
    assert not any(bench.row(n).mined for n in ids)

    def fail(_raw: str) -> str:
        raise ChainUnavailableError(chain=CHAIN.id, reason="no answer")

    bench.rpc.malformed, bench.rpc.words = set(), fail
    bench.commit(1, first=14)
    with pytest.raises(ChainUnavailableError):
        bench.round(100)
    assert [n for n in ids if bench.row(n).mined] == ids[:2]


def test_what_waits_behind_many_others_is_looked_up_seldom(bench: Bench) -> None:
    bench.commit(40)
    bench.rpc.known = True
    bench.round()
    bench.rpc.looked_up = 0
    bench.round(15_000)
    assert bench.rpc.looked_up == 8
    bench.round(300_000)
    assert bench.rpc.looked_up == 47, "the first one is sent with higher fees"


def test_only_the_first_of_many_final_transactions_that_are_gone_are_sent_again_at_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    ids = bench.commit(100)
    bench.round()
    bench.rpc.mined = {bench.row(n).last.hash: 5 for n in ids}
    bench.rpc.counted = 100
    bench.rpc.head = 5 + CHAIN.finality + CHAIN.confirmations
    bench.round()
    assert not any(bench.row(n).watched_since for n in ids)
    bench.commit(1, first=100)
    bench.rpc.mined, bench.rpc.counted = {}, 0
    bench.round()
    bench.round(LAGS_MS)
    again = [n for n in ids if bench.row(n).vanished]
    assert again == ids[:64]
    assert caplog.text
