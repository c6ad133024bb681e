"""Processes die while another one is stopped, and where a lease ends unused or a transaction is
signed again: the chain has all committed transactions, with consecutive nonces, and each has one
outcome."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.chain.crashes import CHAIN, NODE, PROJECT, Event, held, kill
from tests.chain.deaths import Ledger, mortal, sent_again, values
from tests.chain.evm import Evm
from tests.chain.gate import Gate
from tests.chain.senders import Sending, request
from tests.support.crash_at import CrashAt
from tests.support.nodes import until
from tests.support.tools import LIMIT_S


@pytest.fixture(scope="module")
def gate(evm: Evm) -> Iterator[Gate]:
    made = Gate(evm.url)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def sending(
    tmp_path_factory: pytest.TempPathFactory, evm: Evm, gate: Gate, crash_at: CrashAt
) -> Iterator[Sending]:
    with mortal(tmp_path_factory.mktemp("faults"), evm, crash_at, gate.url) as made:
        yield made


@pytest.mark.parametrize(
    ("point", "victim"),
    [
        ("chain.lease_stored", PROJECT),
        ("chain.before_commit_stored", PROJECT),
        ("chain.outbox_entry_received", PROJECT),
        ("project.chain_answer_received", CHAIN),
        ("project.committed", CHAIN),
        ("project.before_outbox_send", CHAIN),
    ],
)
@pytest.mark.thorough("chain.lease_stored-project")
def test_a_death_while_the_other_process_is_at_a_point_loses_no_transaction_and_doubles_none(
    sending: Sending, crash_at: CrashAt, point: str, victim: str
) -> None:
    ledger, value = Ledger(sending), next(values)
    crash_at.arm(point, hold=True)
    name = f"{point} and {victim}"
    event = Event(sending, "send", request(value=value), name, at=crash_at.reached)
    crash_at.happens()
    pid = held(sending.node)
    kill(sending, victim)
    os.kill(pid, signal.SIGCONT)
    sent = [value] if event.code() == 0 else []
    ledger.balances([*sent, sent_again(sending)])


@pytest.mark.parametrize("point", ["chain.before_lease_return", "chain.leases_returned"])
def test_a_death_while_a_lease_is_given_up_leaves_no_gap(
    sending: Sending, crash_at: CrashAt, point: str
) -> None:
    ledger = Ledger(sending)
    crash_at.arm(point)
    event = Event(sending, "trap", request(value=next(values)), point)
    crash_at.happens()
    assert event.code() == -1
    ledger.balances([sent_again(sending)])


@pytest.mark.parametrize("point", ["chain.replacement_signed", "chain.replacement_stored"])
def test_a_death_while_a_transaction_is_signed_again_leaves_one_of_the_two(
    sending: Sending, crash_at: CrashAt, point: str
) -> None:
    node, ledger, value = sending.node, Ledger(sending), next(values)
    assert node.call("POST", "/chain/local/park").status == 201
    sending.sends("send", request(value=value))
    row = until(lambda: [r for r in sending.rows() if r.state == "INIT"], "it waits")[0]
    crash_at.arm(point)
    assert node.call("POST", f"/tx/sender/{row.name}/retry").status == 503
    crash_at.happens()
    until(lambda: node.call("POST", "/chain/local/resume").status == 201, "it goes on")
    ledger.balances([value, sent_again(sending)])


@pytest.mark.parametrize("victim", [CHAIN, NODE])
def test_a_death_when_only_the_endpoint_knows_that_it_has_the_bytes_doubles_none(
    sending: Sending, gate: Gate, victim: str
) -> None:
    ledger, value = Ledger(sending), next(values)
    with gate.holding("eth_sendRawTransaction", answers=True) as held:
        name = f"endpoint {victim}"
        event = Event(sending, "send", request(value=value), name, at=held.arrived.is_set)
        assert held.arrived.wait(LIMIT_S)
        kill(sending, victim)
    assert event.code() == 0
    ledger.balances([value, sent_again(sending)])
