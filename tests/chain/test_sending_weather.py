"""What chains do to transactions: fees rise, blocks vanish, nonces are taken, funds end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.storage.chain_store import ChainStoreReader, chain_path
from fieldbrook.storage.chain_transactions import Transaction, TransactionReads
from tests.chain.evm import Evm
from tests.chain.gate import Gate
from tests.chain.senders import ETHER, SOMEBODY, Sending, request
from tests.integration.nodes import until

GWEI = 10**9


@pytest.fixture
def evm() -> Iterator[Evm]:
    chain = Evm()
    yield chain
    chain.stop()


@pytest.fixture
def gate(evm: Evm) -> Iterator[Gate]:
    made = Gate(evm.url)
    yield made
    made.stop()


class Weather(Sending):
    """Blocks are mined when the test says so."""

    def __init__(self, folder: Path, evm: Evm, **chain: Any) -> None:
        super().__init__(folder, evm, **chain)
        evm.rpc("evm_setAutomine", False)

    def newest(self) -> Transaction:
        """The newest transaction as the chain's process has it."""
        store = ChainStoreReader.open_if_exists(chain_path(self.node.data / "chains", 31337))
        assert store is not None
        try:
            return TransactionReads(store.environment).all()[-1]
        finally:
            store.close()

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


@pytest.fixture
def weather(tmp_path: Path, evm: Evm, gate: Gate, chain: dict[str, Any]) -> Iterator[Weather]:
    made = Weather(tmp_path, evm, url=gate.url, **chain)
    yield made
    made.node.stop()


@pytest.mark.parametrize("chain", [{"reprice_s": 1, "max_fee_per_gas": 100 * GWEI}])
def test_a_transaction_that_no_block_takes_is_signed_again_with_higher_fees_up_to_the_cap(
    weather: Weather,
) -> None:
    evm = weather.evm
    assert weather.send("send", request(value=9)) == 0
    first = weather.becomes("PENDING").last
    evm.rpc("anvil_setNextBlockBaseFeePerGas", hex(30 * GWEI))
    evm.mine()
    until(lambda: weather.newest().last.limit > 30 * GWEI, "higher fees")
    assert len(weather.newest().attempts) > 1
    assert {tried.nonce for tried in weather.newest().attempts} == {first.nonce}
    done = weather.mined()
    assert done.last.limit <= 100 * GWEI
    assert weather.sent() == 1


@pytest.mark.parametrize("chain", [{"reprice_s": 1, "max_fee_per_gas": 20 * GWEI}])
def test_a_gas_price_above_the_cap_is_waited_for_and_nothing_is_lost(weather: Weather) -> None:
    evm = weather.evm
    evm.rpc("anvil_setNextBlockBaseFeePerGas", hex(50 * GWEI))
    evm.mine()
    assert weather.send("send", request(value=9)) == 0
    until(lambda: "20000000000 wei per gas at most" in weather.newest().reason, "the reason")
    assert weather.send("send", request(value=10)) == 0
    evm.rpc("anvil_setNextBlockBaseFeePerGas", hex(2 * GWEI))
    evm.mine()
    weather.becomes("PENDING")
    evm.mine()
    weather.becomes("CONFIRMED")
    assert weather.sent() == 2


@pytest.mark.parametrize("chain", [{"confirmations": 2}])
def test_a_transaction_whose_block_vanishes_is_sent_again_with_the_same_bytes(
    weather: Weather,
) -> None:
    evm = weather.evm
    assert weather.send("send", request(value=9)) == 0
    weather.becomes("PENDING")
    evm.mine()
    first = weather.becomes("IN_BLOCK")
    evm.reorganise(1)
    again = weather.mined()
    assert [tried.hash for tried in again.attempts] == [first.last.hash]
    assert again.block_hash != first.block_hash
    assert weather.sent() == 1


@pytest.mark.parametrize("chain", [{"confirmations": 1}])
def test_a_nonce_that_a_foreign_transaction_took_is_replaced_once_that_is_final(
    weather: Weather,
) -> None:
    evm = weather.evm
    evm.rpc("anvil_impersonateAccount", weather.address)
    assert weather.send("send", request(value=9)) == 0
    ours = weather.becomes("PENDING").last
    # Another program has the key: its transaction pays more and takes the nonce.
    foreign = {
        "from": weather.address,
        "to": SOMEBODY,
        "value": "0x5",
        "nonce": hex(ours.nonce),
        "gas": hex(21_000),
        "maxFeePerGas": hex(90 * GWEI),
        "maxPriorityFeePerGas": hex(50 * GWEI),
    }
    evm.rpc("anvil_dropTransaction", ours.hash)
    evm.rpc("eth_sendTransaction", foreign)
    done = weather.mined()
    assert [tried.nonce for tried in done.attempts] == [ours.nonce, ours.nonce + 1]
    assert "was used by a transaction that is not the node's" in done.last.why
    assert weather.sent() == 2
    assert int(evm.rpc("eth_getBalance", SOMEBODY, "latest"), 16) == 5 + 9


@pytest.mark.parametrize("chain", [{}])
def test_an_endpoint_that_is_down_refuses_a_send_and_keeps_what_is_committed(
    weather: Weather, gate: Gate
) -> None:
    evm = weather.evm
    evm.rpc("evm_setAutomine", True)
    with gate.holding("eth_sendRawTransaction") as held:
        assert weather.send("send", request(value=1)) == 0
        assert held.arrived.wait(20)
        gate.closed = True
    assert weather.send("send", request(value=2)) == -1
    weather.logs("chain local: ")
    assert weather.send("read", b'{"to":"%s"}' % SOMEBODY.encode()) == -1
    weather.fund(1000)  # not enough for the fees of what waits
    gate.closed = False
    until(lambda: "nsufficient funds" in weather.newest().reason, "the reason is visible")
    assert weather.newest().state == "INIT"
    weather.fund(ETHER)
    weather.becomes("CONFIRMED")
    assert weather.send("send", request(value=3)) == 0
    weather.becomes("CONFIRMED")
    assert weather.sent() == 2


def test_an_endpoint_that_does_not_answer_is_passed_over_while_the_guest_waits(
    tmp_path: Path, evm: Evm, gate: Gate
) -> None:
    weather = Weather(tmp_path, evm, endpoints=[gate.url, evm.url])
    evm.rpc("evm_setAutomine", True)
    with gate.holding("eth_estimateGas") as held:
        assert weather.send("send", request(value=1)) == 0, weather.logged()
        assert held.arrived.is_set()
    weather.becomes("CONFIRMED")
    weather.node.stop()
