"""A node whose processes die at named steps of a send, and checks of what must still be there.

The tests lie in three files, because a file is run by one process: `test_sending_faults_lease.py`
until a transaction is committed, `test_sending_faults_outcome.py` from there to its outcome, and
`test_sending_faults.py` for two processes at once and for what is not on a send's way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fieldbrook.observability.fault_points import POINTS
from tests.chain.crashes import CHAIN, NODE, PROJECT, Event, kill
from tests.chain.evm import Evm
from tests.chain.senders import Sending, request
from tests.support.crash_at import CrashAt
from tests.support.nodes import until

Death = tuple[str, int, str]
"""A fault point, the visit of the point at which a process dies, and the process."""

values = itertools.count(1_000)
"""The amounts of transactions: all are different, so that transactions can be distinguished."""


@contextmanager
def mortal(folder: Path, evm: Evm, crash_at: CrashAt, url: str = "") -> Iterator[Sending]:
    """Start a node whose processes can be made to die; `url` is the address of an endpoint in front
    of the chain."""
    made = Sending(folder, evm, url=url, kind=crash_at.node)
    try:
        yield made
    finally:
        made.node.stop()


class Ledger:
    """What the chain and the project had before a test, to compare it with their state
    afterwards."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._block = sending.evm.height + 1
        self._nonce, self._told = sending.sent(), sending.outcomes()

    def balances(self, values: Sequence[int]) -> None:
        """Check that the chain has a transaction for each value, in this order and with consecutive
        nonces, that each outcome was reported once to its project, and that nothing is left to be
        done."""
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
    """Send one transaction through a node that has just recovered; return its value."""
    value = next(values)
    until(lambda: sending.send("send", request(value=value)) == 0, "it sends again")
    return value


def dies_in_a_send(sending: Sending, crash_at: CrashAt, death: Death) -> None:
    """Check that a death at a point of a send neither loses nor doubles a transaction."""
    point, count, victim = death
    ledger, value = Ledger(sending), next(values)
    crash_at.arm(point, count, hold=victim == NODE)
    name = f"{point} {count} {victim}"
    event = Event(sending, "send", request(value=value), name, at=crash_at.reached)
    crash_at.happens()
    if victim == NODE:
        kill(sending, NODE)
    sent = [value] if event.code() == 0 else []
    ledger.balances([*sent, sent_again(sending)])


# ---------------------------------------------------------------- points

_SEPARATE = {  # points that an ordinary send does not reach; other tests cover them
    "chain.before_lease_return",
    "chain.leases_returned",
    "chain.replacement_signed",
    "chain.replacement_stored",
}
_SEND = [name for name in POINTS if name not in _SEPARATE]
_OF_CHAIN = [name for name in _SEND if name.startswith("chain.")]
_OF_PROJECT = [name for name in _SEND if name.startswith("project.")]
_TAKEN = _OF_CHAIN.index("chain.outbox_entry_received")  # until here a transaction is a lease
_GIVEN = _OF_PROJECT.index("project.before_outbox_send")


def _once(points: Sequence[str]) -> list[tuple[str, int]]:
    return [(point, 1) for point in points]


def _table(
    of_chain: Sequence[tuple[str, int]],
    of_project: Sequence[tuple[str, int]],
    of_node: Sequence[tuple[str, int]],
) -> list[Death]:
    """Return fault points and the process that dies there. A node that has just started has no
    backoff for its processes, so the whole node also dies after every few deaths."""
    chains, projects, nodes = iter(of_chain), iter(of_project), iter(of_node)
    made: list[Death] = []
    while True:
        some = [(*at, CHAIN) for at in itertools.islice(chains, 3)]
        some += [(*at, PROJECT) for at in itertools.islice(projects, 2)]
        some += [(*at, NODE) for at in itertools.islice(nodes, 1)]
        if not some:
            return made
        made += some


WHILE_A_LEASE = _table(
    _once(_OF_CHAIN[:_TAKEN]),
    _once(_OF_PROJECT[:_GIVEN]),
    _once(["chain.lease_stored", "project.committed"]),
)
AFTER_THE_COMMIT = _table(
    _once(_OF_CHAIN[_TAKEN:]),
    [
        *_once(_OF_PROJECT[_GIVEN:]),
        # The second batch that the project commits is the one with the outcome.
        *((f"project.{step}", 2) for step in ("before_commit", "committed", "events_answered")),
    ],
    [
        *_once(["chain.outbox_entry_stored", "chain.sent", "chain.final_state_stored"]),
        ("project.committed", 2),
    ],
)
