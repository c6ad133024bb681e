"""Leases of nonces: whatever happens, committed transactions have consecutive nonces."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import lmdb
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.rpc.answers import quantity
from fieldbrook.chain.transactions.chain_state import RESULT_LIMIT_BYTES, returned
from fieldbrook.chain.transactions.nonces import Leases, TransactionRequest
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.core.model import Operator, Project
from fieldbrook.core.settings.chain import read_chain
from fieldbrook.security.operator_keys import ECDSA, Vault, address_of
from fieldbrook.storage.chain.transactions import INIT, LEASED, Transaction, TransactionWriter
from fieldbrook.storage.lmdb.environment import open_environment
from fieldbrook.storage.registry.service import RegistryReader
from tests.support.tools import LIMIT_S
from tests.unit.chain.transactions.endpoint import AnyEndpoint

SECRET = bytes.fromhex("11" * 32)
ADDRESS = address_of(SECRET, ECDSA)
VAULT = Vault(bytes(32))
CHAIN = read_chain({"id": 31337, "name": "dev", "endpoint": "http://127.0.0.1:1"})
T = TypeVar("T")


class Rpc(AnyEndpoint):
    """A chain that has only the given transactions of the account."""

    def __init__(self) -> None:
        self.counted = 0
        self.balance = 10**24
        self.asked = 0

    async def answer(self, method: str, params: list[Any]) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        return {
            "eth_getTransactionCount": hex(self.counted),
            "eth_getBalance": hex(self.balance),
            "eth_estimateGas": hex(21_000),
            "eth_maxPriorityFeePerGas": hex(10**9),
            "eth_getBlockByNumber": {"baseFeePerGas": hex(10**9), "gasLimit": hex(30_000_000)},
        }[method]


class Registry:
    """A registry in which every project exists and has the same operator."""

    operator_ = Operator(
        operator_id=1,
        account_id=1,
        name="default",
        kind=ECDSA,
        address=ADDRESS,
        sealed_key=VAULT.seal(SECRET, ADDRESS),
        created_at=1,
        updated_at=1,
    )

    def project(self, project_id: int) -> Project:
        return cast("Project", self)

    def operator_of_project(self, project: Project) -> Operator:
        return self.operator_

    def operator(self, operator_id: int) -> Operator:
        return self.operator_

    def traffic_limits(self, project_id: int) -> list[Any]:
        return []

    def spending_limit(self, project_id: int) -> int | None:
        return None


def wanted(key: bytes, value: int = 1, within_s: float = LIMIT_S) -> TransactionRequest:
    request = json.dumps({"to": ADDRESS, "value": str(value), "data": ""}).encode()
    return TransactionRequest(key, None, request, "event", "TX_RESULT", b"", within_s)


def leases_over(environment: lmdb.Environment, rpc: Rpc) -> tuple[TransactionWriter, Leases]:
    rows = TransactionWriter(environment)
    return rows, Leases(CHAIN, rpc, rows, cast(RegistryReader, Registry()), VAULT)


@pytest.fixture
def environment(tmp_path: Path) -> lmdb.Environment:
    return open_environment(tmp_path / "chain", map_size=64 << 20)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def test_a_run_that_is_repeated_has_the_same_bytes_if_nobody_took_its_nonce(
    environment: lmdb.Environment,
) -> None:
    async def scenario() -> None:
        _, leases = leases_over(environment, Rpc())
        first = await leases.prepare(7, wanted(b"a"), ())
        await leases.resolve(7, (), ())  # the project died
        again = await leases.prepare(7, wanted(b"a"), ())
        assert again.last.raw == first.last.raw
        await leases.resolve(7, (), ())
        other = await leases.prepare(8, wanted(b"b"), ())
        await leases.settle(8, (b"b",))
        assert other.nonce == first.nonce
        later = await leases.prepare(7, wanted(b"a"), ())
        assert later.nonce == first.nonce + 1

    run(scenario())


def test_a_repeated_run_that_wants_another_transaction_has_another(
    environment: lmdb.Environment,
) -> None:
    async def scenario() -> None:
        _, leases = leases_over(environment, Rpc())
        first = await leases.prepare(7, wanted(b"a", 1), ())
        await leases.resolve(7, (), ())
        again = await leases.prepare(7, wanted(b"a", 2), ())
        assert (again.nonce, again.value) == (first.nonce, "2")

    run(scenario())


def test_leases_of_a_crash_are_kept_until_their_project_says_what_became_of_them(
    environment: lmdb.Environment,
) -> None:
    async def scenario() -> None:
        rpc = Rpc()
        _, leases = leases_over(environment, rpc)
        await leases.prepare(7, wanted(b"a"), ())
        await leases.prepare(7, wanted(b"b"), (b"a",))
        rows, leases = leases_over(environment, rpc)  # the process was killed
        assert leases.projects() == {7}
        await leases.resolve(7, (b"a",), ())
        assert leases.projects() == set()
        assert [(row.call_key, row.state) for row in rows.all()] == [(b"a", INIT)]
        assert (await leases.prepare(8, wanted(b"c"), ())).nonce == 1

    run(scenario())


def test_another_project_waits_for_the_key_and_is_refused_when_that_takes_too_long(
    environment: lmdb.Environment,
) -> None:
    async def scenario() -> None:
        _, leases = leases_over(environment, Rpc())
        await leases.prepare(7, wanted(b"a"), ())
        with pytest.raises(ChainUnavailableError, match="in use by another project"):
            await leases.prepare(8, wanted(b"b", within_s=0.05), ())
        waiting = asyncio.create_task(leases.prepare(8, wanted(b"b"), ()))
        await asyncio.sleep(0)
        await leases.settle(7, (b"a",))
        assert (await waiting).nonce == 1

    run(scenario())


def test_an_outbox_entry_that_the_store_has_lost_is_a_transaction_again(
    environment: lmdb.Environment, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        rows, leases = leases_over(environment, Rpc())
        made = await leases.prepare(7, wanted(b"a"), ())
        rows.drop([made])
        _, leases = leases_over(environment, Rpc())
        await leases.accept(made)
        await leases.accept(made)
        assert [row.state for row in rows.all()] == [INIT]

    run(scenario())
    assert "did not have it and stores it again" in caplog.text


class Batches(RuleBasedStateMachine):
    """Three projects with one key: batches that commit, fail and die in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.environment = open_environment(Path(self.folder.name) / "c", map_size=64 << 20)
        self.rpc = Rpc()
        self.held: dict[int, list[Transaction]] = {}
        self.outboxes: dict[int, list[Transaction]] = {1: [], 2: [], 3: []}
        self.committed: list[Transaction] = []
        self.calls = 0

    @initialize()
    def open(self) -> None:
        self.rows, self.leases = leases_over(self.environment, self.rpc)

    def owner(self) -> int | None:
        """Return the project with open leases, which alone may get more."""
        return next(iter(self.leases.projects()), None)

    @rule(project=st.integers(1, 3))
    def send(self, project: int) -> None:
        if self.owner() not in (None, project):
            return
        self.calls += 1
        held = self.held.setdefault(project, [])
        key = self.calls.to_bytes(4, "big")
        keys = [row.call_key for row in held]
        held.append(run(self.leases.prepare(project, wanted(key), keys)))

    @rule(project=st.integers(1, 3))
    def a_run_fails(self, project: int) -> None:
        if self.held.get(project):
            self.held[project].pop()

    @rule(project=st.integers(1, 3), heard=st.booleans())
    def commit(self, project: int, heard: bool) -> None:
        batch = self.held.pop(project, [])
        self.outboxes[project] += batch
        self.committed += batch
        if heard:
            run(self.leases.settle(project, [row.call_key for row in batch]))
        else:
            self.hello(project)

    @rule(project=st.integers(1, 3))
    def die(self, project: int) -> None:
        self.held.pop(project, None)
        self.hello(project)

    def hello(self, project: int) -> None:
        outbox = [row.call_key for row in self.outboxes[project]]
        held = [row.call_key for row in self.held.get(project, [])]
        run(self.leases.resolve(project, outbox, held))

    @rule(project=st.integers(1, 3))
    def take_outbox(self, project: int) -> None:
        while self.outboxes[project]:
            run(self.leases.accept(self.outboxes[project].pop(0)))

    @rule()
    def the_chains_process_dies(self) -> None:
        self.rows, self.leases = leases_over(self.environment, self.rpc)
        for project in (1, 2, 3):
            self.hello(project)

    @precondition(lambda self: self.rows.unfinished)
    @rule()
    def a_block_takes_all(self) -> None:
        done = [row for row in self.rows.unfinished.values() if row.state == INIT]
        if done:
            self.rpc.counted = max(self.rpc.counted, 1 + max(row.nonce for row in done))

    @invariant()
    def committed_transactions_have_nonces_without_a_gap(self) -> None:
        assert [row.nonce for row in self.committed] == list(range(len(self.committed)))
        stored = {row.call_key: row for row in self.rows.all()} if self.calls else {}
        for row in self.committed:
            assert stored[row.call_key].last == row.last
            assert stored[row.call_key].state == INIT
        known = {row.call_key for row in self.committed}
        assert all(row.state == LEASED for key, row in stored.items() if key not in known)

    def teardown(self) -> None:
        self.environment.close()
        self.folder.cleanup()


TestBatches = Batches.TestCase
TestBatches.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("said", ["0xabc", "0xzz", "zz", None, ["0x"], "\u0660"])
def test_an_endpoint_that_answers_a_call_with_no_bytes_is_an_endpoint_that_does_not_answer(
    environment: lmdb.Environment, monkeypatch: pytest.MonkeyPatch, said: object
) -> None:
    async def answer(method: str, params: list[Any]) -> Any:
        return said

    rpc = Rpc()
    monkeypatch.setattr(rpc, "answer", answer)
    _, leases = leases_over(environment, rpc)
    request = json.dumps({"to": ADDRESS, "data": ""}).encode()
    with pytest.raises(ChainUnavailableError, match="an endpoint returned an unusable"):
        run(leases.call(request, LIMIT_S))


@pytest.mark.parametrize("said", ["0x" + "f" * 10_000, "-0x5", "0x1_0", " 0x1", 5, None])
def test_a_number_that_is_none_prepares_no_transaction(
    environment: lmdb.Environment, monkeypatch: pytest.MonkeyPatch, said: object
) -> None:
    rpc = Rpc()
    answers = rpc.answer

    async def answer(method: str, params: list[Any]) -> Any:
        return said if method == "eth_getTransactionCount" else await answers(method, params)

    monkeypatch.setattr(rpc, "answer", answer)
    _, leases = leases_over(environment, rpc)
    with pytest.raises(ChainUnavailableError, match="an endpoint answered"):
        run(leases.prepare(7, wanted(b"k" * 32), [], lambda: True))


def test_a_quantity_of_another_form_makes_the_endpoint_useless() -> None:
    large = ("0x" + "f" * 65, "0x" + "f" * 10**6)
    texts = ("5", "0x", "-0x5", "0x-5", "0x1_0", " 0x1", "0x1\n", *large)
    values: tuple[object, ...] = (None, 5, {}, *texts)
    for value in values:
        with pytest.raises(MalformedAnswerError):
            quantity(value)


def test_a_result_of_another_form_makes_the_endpoint_useless() -> None:
    large = "0x" + "00" * (RESULT_LIMIT_BYTES + 1)
    values: tuple[object, ...] = (None, {}, "", "00", "0x0", "0xgg", "0x 00", large)
    for value in values:
        with pytest.raises(
            ChainUnavailableError, match="an endpoint returned an unusable"
        ) as caught:
            returned(value)
        assert len(str(caught.value)) < 200


def test_quantities_and_results_are_read() -> None:
    assert (quantity("0x0"), quantity("0x" + "f" * 64)) == (0, 2**256 - 1)
    assert (returned("0x"), returned("0x00ff")) == (b"", b"\0\xff")
