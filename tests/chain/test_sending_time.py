"""How long a handler waits for a chain: as long as its deadline allows, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chain.evm import Evm
from tests.chain.gate import Gate
from tests.chain.providers import Provider
from tests.chain.reading import providers
from tests.chain.senders import SOMEBODY, Sending, request

READ = b'{"to":"%s"}' % SOMEBODY.encode()


@pytest.fixture(scope="module")
def distant(evm: Evm) -> Iterator[Provider]:
    """An endpoint that takes 0.8 s for each request."""
    with providers(evm, ["distant"], failures=0.0, seed=1) as [made]:
        yield made


@pytest.fixture(scope="module")
def gate(evm: Evm) -> Iterator[Gate]:
    made = Gate(evm.url)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def patient(
    tmp_path_factory: pytest.TempPathFactory, evm: Evm, distant: Provider
) -> Iterator[Sending]:
    """A node whose only endpoint is slow."""
    made = Sending(tmp_path_factory.mktemp("patient"), evm, url=distant.url)
    yield made
    made.node.stop()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory, evm: Evm, gate: Gate) -> Iterator[Sending]:
    """A node whose handlers have a deadline of one second."""
    folder = tmp_path_factory.mktemp("hasty")
    made = Sending(folder, evm, url=gate.url, before=["deadline_ms = 1000"])
    yield made
    made.node.stop()


@pytest.mark.parametrize("batch", [10, 1])
@pytest.mark.thorough("10")
def test_handlers_send_and_read_through_the_only_endpoint_although_it_takes_0_8_s(
    patient: Sending, distant: Provider, batch: int
) -> None:
    distant.change(batch=batch)
    before = patient.sent()
    for value in range(3):
        assert patient.send("send", request(value=value)) == 0
    assert patient.send("read", READ) == 0
    patient.settled(before + 3)


@pytest.mark.thorough
def test_a_distant_endpoint_is_waited_for_although_the_preferred_one_is_silent(
    tmp_path: Path, evm: Evm, gate: Gate, distant: Provider
) -> None:
    sending = Sending(tmp_path, evm, endpoints=[gate.url, distant.url])
    try:
        before = sending.sent()
        with gate.holding("eth_estimateGas") as held:
            assert sending.send("send", request()) == 0
            assert held.arrived.is_set()
        sending.settled(before + 1)
    finally:
        sending.node.stop()


@pytest.mark.thorough
def test_a_handler_is_told_before_its_deadline_that_no_endpoint_answers(
    hasty: Sending, gate: Gate
) -> None:
    with gate.holding("eth_estimateGas") as held:
        assert hasty.send("send", request()) == -1
        assert held.arrived.is_set()
    hasty.logs("ws_send_tx: chain local: no endpoint answers in time")
    assert "deadline of" not in hasty.logged()
    assert hasty.send("send", request()) == 0
