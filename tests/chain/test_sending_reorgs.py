"""Reorganisations that remove confirmed transactions which the pool has lost: in the end the chain
has every committed transaction once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.storage.chain.transactions import CONFIRMED
from tests.chain.crashes import CHAIN, kill
from tests.chain.evm import Evm
from tests.chain.reading import providers
from tests.chain.senders import Sending, request
from tests.support.nodes import until
from tests.support.shell import Shell

FINALITY = 8


@contextlib.contextmanager
def node(folder: Path, evm: Evm, **chain: Any) -> Iterator[Sending]:
    made = Sending(folder, evm, finality=FINALITY, **chain)
    try:
        yield made
    finally:
        made.node.stop()
        evm.rpc("evm_setAutomine", True)


def confirmed(sending: Sending) -> int:
    return Counter(row.state for row in sending.rows())[CONFIRMED]


def grown(sending: Sending, count: int) -> bool:
    """Mine a block; return whether this number of transactions is confirmed then."""
    sending.evm.mine()
    return confirmed(sending) == count


def health(sending: Sending) -> dict[str, str]:
    """Return the details of the node's health conditions."""
    rows = sending.node.call("GET", "/health").json["data"]
    return {row["state"]: row["detail"] for row in rows}


def missing(sending: Sending) -> float:
    """Return the metric of nonces that the chain does not count."""
    page = sending.node.call("GET", "/metrics").body.decode()
    rows = [row for row in page.splitlines() if row.startswith("fieldbrook_chain_nonces_missing{")]
    return sum(float(row.rpartition(" ")[2]) for row in rows)


@pytest.mark.thorough
def test_a_confirmed_transaction_that_the_chain_and_the_pool_have_lost_is_told_and_sent_again(
    tmp_path: Path, evm: Evm
) -> None:
    with node(tmp_path, evm, confirmations=0) as sending:
        sending.sends("send", request(value=7))
        until(lambda: confirmed(sending) == 1 and sending.at_rest(), "nonce 0 is confirmed")
        evm.rpc("evm_setAutomine", False)
        evm.reorganise(1)
        told = until(lambda: health(sending).get("nonces_differ"), "health")
        assert "the chain counts 0 nonces, the node has used 1" in told
        until(lambda: missing(sending) == 1, "the metric")
        sending.sends("send", request(value=8))
        until(lambda: grown(sending, 2), "both are confirmed")
        assert sending.on_chain() == [(0, 7), (1, 8)]
        until(lambda: sending.outcomes() == 2, "each has told its project")
        until(lambda: "nonces_differ" not in health(sending), "health")
        until(lambda: missing(sending) == 0, "the metric")


@pytest.mark.thorough
def test_a_lost_transaction_that_no_endpoint_takes_is_listed_as_stuck(
    tmp_path: Path, evm: Evm
) -> None:
    with node(tmp_path, evm, confirmations=0) as sending:
        shell = Shell(tmp_path / "config", sending.node)
        sending.sends("send", request(value=7))
        until(lambda: confirmed(sending) == 1 and sending.at_rest(), "nonce 0 is confirmed")
        sending.fund(0)
        evm.rpc("evm_setAutomine", False)
        evm.reorganise(1)
        sending.fund(0)
        listed = until(lambda: shell.json("tx", "list", "sender", "--stuck")["data"], "it is stuck")
        assert listed[0]["nonce"] == 0
        until(lambda: "stuck_transactions" in health(sending), "health")
        sending.fund(10**18)
        until(lambda: sending.rows()[0].state == "PENDING", "an endpoint takes it")
        until(lambda: grown(sending, 1), "it is confirmed again")
        assert sending.on_chain() == [(0, 7)]


@pytest.mark.parametrize(("names", "killed"), [("", False), ("pool", True), ("ankr", False)])
@pytest.mark.thorough("ankr", "pool")
def test_all_that_is_acknowledged_is_on_chain_once_after_a_reorganisation_deeper_than_confirmed(
    tmp_path: Path, evm: Evm, names: str, killed: bool
) -> None:
    count = 26
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(providers(evm, [name], 0.05, 1))[0] for name in names.split()]
        urls = [endpoint.url for endpoint in found] or [evm.url]
        sending = stack.enter_context(node(tmp_path, evm, confirmations=1, endpoints=urls))
        evm.rpc("evm_setAutomine", False)
        for value in range(1, count + 1):
            sending.sends("send", request(value=value, gasLimit=21_000))

        until(lambda: all(row.state == "PENDING" for row in sending.rows()), "all are sent")
        evm.mine(2)
        until(lambda: confirmed(sending) == count, "all are confirmed")
        if killed:
            kill(sending, CHAIN)
        evm.reorganise(2)
        assert sending.on_chain() == []
        until(lambda: confirmed(sending) == 0, "the node sees that they are gone")
        until(lambda: grown(sending, count), "all are confirmed again")
        assert sending.on_chain() == [(nonce, nonce + 1) for nonce in range(count)]
        until(lambda: sending.outcomes() == count, "each has told its project once")
        for _ in range(FINALITY):
            evm.mine()
        until(lambda: not any(row.watched_since for row in sending.rows()), "all are final")
