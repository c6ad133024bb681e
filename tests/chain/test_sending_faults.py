"""Processes die at every step of a send: the chain has as many transactions as were committed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from http.client import HTTPException

import pytest

from fieldbrook.storage.chain_store import ChainStoreReader, chain_path
from fieldbrook.storage.chain_transactions import LEASED, TransactionReads
from tests.chain.evm import Evm
from tests.chain.gate import Gate
from tests.chain.senders import Sending, request
from tests.integration.nodes import alive, parts, until

CHAIN, PROJECT, NODE = "fb-chain:31337", "fb-project", "the node"


@pytest.fixture(scope="module")
def evm() -> Iterator[Evm]:
    chain = Evm()
    yield chain
    chain.stop()


@pytest.fixture(scope="module")
def gate(evm: Evm) -> Iterator[Gate]:
    made = Gate(evm.url)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def sending(tmp_path_factory: pytest.TempPathFactory, evm: Evm, gate: Gate) -> Iterator[Sending]:
    made = Sending(tmp_path_factory.mktemp("faults"), evm, url=gate.url)
    yield made
    made.node.stop()


def kill(sending: Sending, victim: str) -> None:
    """kill -9, and see that what died is there again."""
    node = sending.node
    if victim == NODE:
        node.kill()
        node.start()
        return
    pid = parts(node)[victim]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), f"{victim} is dead")


class Event:
    """An event that is sent while something happens to the node."""

    def __init__(self, sending: Sending, handler: str, payload: bytes, event_id: str) -> None:
        self._sending, self._what = sending, (handler, payload, event_id)
        self._thread = threading.Thread(target=self._once)
        self._thread.start()

    def _once(self) -> int | None:
        try:
            answer = self._sending.event(*self._what)
        except (OSError, HTTPException):
            return None
        if answer.status != 201:
            return None
        code: int = answer.json["results"][0]["code"]
        return code

    def code(self) -> int:
        """What the handler returned in the end: the device sends until it is told."""
        self._thread.join()
        codes: list[int] = []

        def told() -> bool:
            code = self._once()
            if code is not None:
                codes.append(code)
            return bool(codes)

        until(told, "the event is handled")
        return codes[0]


def leased(sending: Sending) -> bool:
    """Whether the chain's store has a lease."""
    store = ChainStoreReader.open_if_exists(chain_path(sending.node.data / "chains", 31337))
    assert store is not None
    try:
        rows = TransactionReads(store.environment)
        return any(row.state == LEASED for row in rows.all())
    finally:
        store.close()


STEPS = {
    "while gas is estimated": ("eth_estimateGas", False),
    "before the bytes leave": ("eth_sendRawTransaction", False),
    "when the endpoint has the bytes": ("eth_sendRawTransaction", True),
    "while the receipt is on its way": ("eth_getTransactionReceipt", True),
}


@pytest.mark.parametrize("victim", [CHAIN, PROJECT, NODE])
@pytest.mark.parametrize("step", list(STEPS))
def test_a_death_at_a_step_loses_no_transaction_and_doubles_none(
    sending: Sending, gate: Gate, step: str, victim: str
) -> None:
    before = sending.sent()
    with gate.holding(STEPS[step][0], answers=STEPS[step][1]) as held:
        event = Event(sending, "send", request(value=3), f"{step} {victim}")
        assert held.arrived.wait(20)
        kill(sending, victim)
    committed = 1 if event.code() == 0 else 0
    sending.settled(before + committed)
    code = until(lambda: sending.send("send", request()) == 0, "it sends again")
    assert code
    sending.settled(before + committed + 1)
    assert not leased(sending)


@pytest.mark.parametrize("victim", [CHAIN, PROJECT, NODE])
def test_a_death_between_the_signature_and_the_commit_leaves_no_gap(
    sending: Sending, victim: str
) -> None:
    before = sending.sent()
    event = Event(sending, "linger", request(value=4), f"signed {victim}")
    until(lambda: leased(sending), "the transaction is signed")
    kill(sending, victim)
    committed = 1 if event.code() == 0 else 0
    sending.settled(before + committed)
    until(lambda: sending.send("send", request()) == 0, "it sends again")
    sending.settled(before + committed + 1)
    until(lambda: not leased(sending), "no lease is left")
