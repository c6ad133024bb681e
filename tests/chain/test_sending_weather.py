"""Events on a chain that affect transactions: fees rise, blocks are removed, nonces are used by
others, funds end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.storage.chain.transactions import Transaction
from tests.chain.evm import Evm
from tests.chain.gate import Gate
from tests.chain.senders import ETHER, SOMEBODY, Sending, request
from tests.support.nodes import until
from tests.support.tools import LIMIT_S

GWEI = 10**9
CAP = 100 * GWEI


@pytest.fixture(scope="module")
def gate(evm: Evm) -> Iterator[Gate]:
    made = Gate(evm.url)
    yield made
    made.stop()
    evm.rpc("evm_setAutomine", True)


class Weather(Sending):
    """A sender, and control over the state of its chain."""

    def __init__(self, folder: Path, evm: Evm, **chain: Any) -> None:
        super().__init__(folder, evm, max_fee_per_gas=CAP, **chain)

    def begin(self) -> None:
        """Begin a test: no transaction in progress, funds, low fees, and blocks only when the test
        mines them."""
        self.fund(100 * ETHER)
        self.base_fee(GWEI)

        def rests() -> bool:
            self.evm.mine()
            return self.at_rest()

        until(rests, "nothing is under way")
        self.evm.rpc("evm_setAutomine", False)

    def base_fee(self, wei: int) -> None:
        """Set the base fee of the newest block."""
        self.evm.rpc("anvil_setNextBlockBaseFeePerGas", hex(wei))
        self.evm.mine()

    def newest(self) -> Transaction:
        """Return the newest transaction from the store of the chain's process."""
        return self.rows()[-1]

    def becomes(self, state: str) -> Transaction:
        """Wait until the newest transaction is in a state."""
        until(lambda: self.newest().state == state, f"{state}, now {self.newest()}")
        return self.newest()

    def mined(self, state: str = "CONFIRMED") -> Transaction:
        """Mine blocks until the newest transaction is in a state."""

        def reached() -> bool:
            self.evm.mine()
            return self.newest().state == state

        until(reached, state)
        return self.newest()

    def received(self) -> int:
        """Return the balance of the receiver of all transactions, in wei."""
        return int(self.evm.rpc("eth_getBalance", SOMEBODY, "latest"), 16)


@pytest.fixture(scope="module")
def calm_node(tmp_path_factory: pytest.TempPathFactory, evm: Evm, gate: Gate) -> Iterator[Weather]:
    folder = tmp_path_factory.mktemp("calm")
    made = Weather(folder, evm, url=gate.url, confirmations=1, reprice_s=3_600)
    yield made
    made.node.stop()


@pytest.fixture(scope="module")
def hasty_node(tmp_path_factory: pytest.TempPathFactory, evm: Evm, gate: Gate) -> Iterator[Weather]:
    folder = tmp_path_factory.mktemp("hasty")
    made = Weather(folder, evm, endpoints=[gate.url, evm.url], reprice_s=1)
    yield made
    made.node.stop()


@pytest.fixture
def calm(calm_node: Weather) -> Weather:
    """A sender that waits long before it pays more, and that waits for one later block."""
    calm_node.begin()
    return calm_node


@pytest.fixture
def hasty(hasty_node: Weather) -> Weather:
    """A sender that pays more after a second, and has a second endpoint."""
    hasty_node.begin()
    return hasty_node


@pytest.mark.thorough
def test_a_transaction_that_no_block_takes_is_signed_again_with_higher_fees_up_to_the_cap(
    hasty: Weather,
) -> None:
    before = hasty.sent()
    hasty.sends("send", request(value=9))
    first = hasty.becomes("PENDING").last
    hasty.base_fee(30 * GWEI)
    until(lambda: hasty.newest().last.limit > 30 * GWEI, "higher fees")
    assert len(hasty.newest().attempts) > 1
    assert {tried.nonce for tried in hasty.newest().attempts} == {first.nonce}
    done = hasty.mined()
    assert done.last.limit <= CAP
    assert hasty.sent() == before + 1


def test_a_gas_price_above_the_cap_is_waited_for_and_nothing_is_lost(calm: Weather) -> None:
    before = calm.sent()
    calm.base_fee(2 * CAP)
    calm.sends("send", request(value=9))
    until(
        lambda: f"the cap max_fee_per_gas is {CAP} wei per gas" in calm.newest().reason,
        "the reason",
    )
    assert calm.newest().refused_at
    calm.sends("send", request(value=10))
    calm.base_fee(2 * GWEI)
    calm.becomes("PENDING")
    calm.mined()
    assert calm.sent() == before + 2


def test_a_transaction_whose_block_vanishes_is_sent_again_with_the_same_bytes(
    calm: Weather,
) -> None:
    before = calm.sent()
    calm.sends("send", request(value=9))
    calm.becomes("PENDING")
    calm.evm.mine()
    first = calm.becomes("IN_BLOCK")
    calm.evm.reorganise(1)
    again = calm.mined()
    assert [tried.hash for tried in again.attempts] == [first.last.hash]
    assert again.block_hash != first.block_hash
    assert calm.sent() == before + 1


def test_a_nonce_that_a_foreign_transaction_took_is_replaced_once_that_is_final(
    calm: Weather,
) -> None:
    evm, before, had = calm.evm, calm.sent(), calm.received()
    evm.rpc("anvil_impersonateAccount", calm.address)
    calm.sends("send", request(value=9))
    ours = calm.becomes("PENDING").last
    # Another program has the key: its transaction pays more and takes the nonce.
    foreign = {
        "from": calm.address,
        "to": SOMEBODY,
        "value": "0x5",
        "nonce": hex(ours.nonce),
        "gas": hex(21_000),
        "maxFeePerGas": hex(90 * GWEI),
        "maxPriorityFeePerGas": hex(50 * GWEI),
    }
    evm.rpc("anvil_dropTransaction", ours.hash)
    evm.rpc("eth_sendTransaction", foreign)
    done = calm.mined()
    assert [tried.nonce for tried in done.attempts] == [ours.nonce, ours.nonce + 1]
    assert "was used by another transaction" in done.last.why
    assert calm.sent() == before + 2
    assert calm.received() == had + 5 + 9


def test_an_endpoint_that_is_down_refuses_a_send_and_keeps_what_is_committed(
    calm: Weather, gate: Gate
) -> None:
    before = calm.sent()
    with gate.holding("eth_sendRawTransaction") as held:
        calm.sends("send", request(value=1))
        assert held.arrived.wait(LIMIT_S)
        gate.closed = True
    assert calm.send("send", request(value=2)) == -1
    calm.logs("chain local: ")
    assert calm.send("read", b'{"to":"%s"}' % SOMEBODY.encode()) == -1
    gate.closed = False
    calm.becomes("PENDING")
    calm.mined()
    until(lambda: calm.send("send", request(value=3)) == 0, "it sends again")
    calm.mined()
    assert calm.sent() == before + 2


def test_a_transaction_without_funds_holds_up_its_account_in_sight_and_no_other(
    hasty: Weather,
) -> None:
    evm, node, before = hasty.evm, hasty.node, hasty.sent()
    evm.rpc("evm_setAutomine", True)
    other = node.call("POST", "/operator/generate", {"name": "other"}).json["address"]
    evm.fund(other, ETHER)
    assert node.call("POST", "/chain/local/park").status == 201
    hasty.sends("send", request(value=1))
    hasty.sends("send", request(value=2))
    hasty.fund(1_000)
    assert node.call("POST", "/chain/local/resume").status == 201

    def stuck() -> list[Any]:
        return list(node.call("GET", "/tx/sender?stuck=true").json["data"])

    first = until(stuck, "it is stuck")[0]
    assert (first["state"], first["stuck"], first["nonce"]) == ("INIT", True, before)
    assert "nsufficient funds" in first["reason"]
    behind = node.call("GET", "/tx/sender?limit=1").json["data"][0]
    assert behind["reason"] == f"waits for {first['transactionID']}, which is refused"
    assert node.call("GET", "/chain/local").json["transactions"]["stuck"] == 1
    until(lambda: '"stuck_transactions"' in node.call("GET", "/health").body.decode(), "health")
    assert f"transaction {first['transactionID']} of project" in node.log
    hasty.sends("named", request(value=3, operatorName="other"))
    hasty.becomes("CONFIRMED")
    assert hasty.sent() == before
    hasty.fund(ETHER)
    hasty.settled(before + 2)
    until(lambda: not stuck(), "nothing is stuck")


def test_a_transaction_that_no_block_can_have_is_cancelled_and_those_behind_it_go_on(
    hasty: Weather,
) -> None:
    evm, node, before = hasty.evm, hasty.node, hasty.sent()
    had, told = hasty.received(), hasty.outcomes()
    evm.rpc("evm_setAutomine", True)
    block_gas = evm.rpc("eth_getBlockByNumber", "latest", False)["gasLimit"]
    assert node.call("POST", "/chain/local/park").status == 201
    hasty.sends("send", request(value=1, gasLimit=90_000))
    hasty.sends("send", request(value=2))
    evm.rpc("evm_setBlockGasLimit", hex(60_000))
    assert node.call("POST", "/chain/local/resume").status == 201
    hasty.settled(before + 2)
    evm.rpc("evm_setBlockGasLimit", block_gas)
    until(lambda: hasty.outcomes() == told + 2, "both outcomes")
    first, second = hasty.rows()[-2:]
    assert (first.state, second.state) == ("FAILED", "CONFIRMED")
    assert first.reason.startswith("refused for good: intrinsic gas too high")
    assert [t.nonce - before for t in (*first.attempts, *second.attempts)] == [0, 0, 1]
    mined = evm.rpc("eth_getTransactionByHash", first.mined)
    assert (mined["to"], mined["value"]) == (hasty.address.lower(), "0x0")
    assert hasty.received() == had + 2


def test_an_endpoint_that_does_not_answer_is_passed_over_while_the_guest_waits(
    hasty: Weather, gate: Gate
) -> None:
    hasty.evm.rpc("evm_setAutomine", True)
    with gate.holding("eth_estimateGas") as held:
        hasty.sends("send", request(value=1))
        assert held.arrived.is_set()
    hasty.becomes("CONFIRMED")
