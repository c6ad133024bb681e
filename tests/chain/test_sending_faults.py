"""Processes die at every step of a send: the chain has as many transactions as were committed,
with nonces that follow each other, and each has one outcome."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator, Sequence

import pytest

from fieldbrook.crash import POINTS
from tests.chain.crashes import CHAIN, NODE, PROJECT, CrashAt, Event, held, kill
from tests.chain.evm import Evm
from tests.chain.gate import Gate
from tests.chain.senders import Sending, request
from tests.integration.nodes import until

_VALUES = itertools.count(1_000)


@pytest.fixture(scope="module")
def gate(evm: Evm) -> Iterator[Gate]:
    made = Gate(evm.url)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def sending(
    tmp_path_factory: pytest.TempPathFactory, evm: Evm, gate: Gate, crash_at: CrashAt
) -> Iterator[Sending]:
    made = Sending(tmp_path_factory.mktemp("faults"), evm, url=gate.url, kind=crash_at.node)
    yield made
    made.node.stop()


class Ledger:
    """What the chain and the project had before, to compare with what they have then."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._block = sending.evm.height + 1
        self._nonce, self._told = sending.sent(), sending.outcomes()

    def balances(self, values: Sequence[int]) -> None:
        """The chain has a transaction for each value, in this order and with consecutive
        nonces; each has told its project once; and nothing is left to be done."""
        sending, count = self._sending, len(values)
        until(sending.at_rest, "no lease is left, and no transaction under way")
        expected = [(self._nonce + place, value) for place, value in enumerate(values)]
        assert self._mined() == expected
        assert sending.outcomes() == self._told + count, sending.node.log[-4_000:]

    def _mined(self) -> list[tuple[int, int]]:
        evm, sender = self._sending.evm, self._sending.address.lower()
        blocks = range(self._block, evm.height + 1)
        found = [evm.rpc("eth_getBlockByNumber", hex(n), True)["transactions"] for n in blocks]
        return [
            (int(row["nonce"], 16), int(row["value"], 16))
            for row in itertools.chain(*found)
            if row["from"] == sender
        ]


def sent_again(sending: Sending) -> int:
    """Have one transaction sent by a node that has just recovered; its value."""
    value = next(_VALUES)
    until(lambda: sending.send("send", request(value=value)) == 0, "it sends again")
    return value


SEND = [name for name in POINTS if "drop" not in name and "again" not in name]
OF_CHAIN = [(point, 1) for point in SEND if point.startswith("chain.")]
OF_PROJECT = [(point, 1) for point in SEND if point.startswith("project.")]
# The second batch that the project commits is the one with the outcome.
OF_PROJECT += [(f"project.{step}", 2) for step in ("commits", "committed", "answered")]
OF_NODE = [
    ("chain.leased", 1),
    ("project.committed", 1),
    ("chain.accepted", 1),
    ("chain.sent", 1),
    ("chain.finished", 1),
    ("project.committed", 2),
]


def table() -> list[tuple[str, int, str]]:
    """Points and who dies there. A node that starts anew forgets how often its parts have
    died, so they start again at once: it dies after every few of them."""
    chains, projects, nodes = iter(OF_CHAIN), iter(OF_PROJECT), iter(OF_NODE)
    made: list[tuple[str, int, str]] = []
    while True:
        some = [(*at, CHAIN) for at in itertools.islice(chains, 3)]
        some += [(*at, PROJECT) for at in itertools.islice(projects, 2)]
        some += [(*at, NODE) for at in itertools.islice(nodes, 1)]
        if not some:
            return made
        made += some


@pytest.mark.parametrize(("point", "count", "victim"), table())
def test_a_death_at_a_point_of_a_send_loses_no_transaction_and_doubles_none(
    sending: Sending, crash_at: CrashAt, point: str, count: int, victim: str
) -> None:
    ledger, value = Ledger(sending), next(_VALUES)
    crash_at.arm(point, count, hold=victim == NODE)
    event = Event(sending, "send", request(value=value), f"{point} {count} {victim}")
    crash_at.happens()
    if victim == NODE:
        kill(sending, NODE)
    values = [value] if event.code() == 0 else []
    ledger.balances([*values, sent_again(sending)])


@pytest.mark.parametrize(
    ("point", "victim"),
    [
        ("chain.leased", PROJECT),
        ("chain.commits", PROJECT),
        ("chain.accepts", PROJECT),
        ("project.has_hash", CHAIN),
        ("project.committed", CHAIN),
        ("project.gives", CHAIN),
    ],
)
def test_a_death_while_the_other_process_is_at_a_point_loses_no_transaction_and_doubles_none(
    sending: Sending, crash_at: CrashAt, point: str, victim: str
) -> None:
    ledger, value = Ledger(sending), next(_VALUES)
    crash_at.arm(point, hold=True)
    event = Event(sending, "send", request(value=value), f"{point} and {victim}")
    crash_at.happens()
    pid = held(sending.node)
    kill(sending, victim)
    os.kill(pid, signal.SIGCONT)
    values = [value] if event.code() == 0 else []
    ledger.balances([*values, sent_again(sending)])


@pytest.mark.parametrize("point", ["chain.drops", "chain.dropped"])
def test_a_death_while_a_lease_is_given_up_leaves_no_gap(
    sending: Sending, crash_at: CrashAt, point: str
) -> None:
    ledger = Ledger(sending)
    crash_at.arm(point)
    event = Event(sending, "trap", request(value=next(_VALUES)), point)
    crash_at.happens()
    assert event.code() == -1
    ledger.balances([sent_again(sending)])


@pytest.mark.parametrize("point", ["chain.signs_again", "chain.signed_again"])
def test_a_death_while_a_transaction_is_signed_again_leaves_one_of_the_two(
    sending: Sending, crash_at: CrashAt, point: str
) -> None:
    node, ledger, value = sending.node, Ledger(sending), next(_VALUES)
    assert node.call("POST", "/chain/local/park").status == 201
    assert sending.send("send", request(value=value)) == 0
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
    ledger, value = Ledger(sending), next(_VALUES)
    with gate.holding("eth_sendRawTransaction", answers=True) as held:
        event = Event(sending, "send", request(value=value), f"endpoint {victim}")
        assert held.arrived.wait(20)
        kill(sending, victim)
    assert event.code() == 0
    ledger.balances([value, sent_again(sending)])
