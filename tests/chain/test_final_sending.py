"""Transactions that are confirmed when the chain calls their blocks final."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.storage.chain.transactions import CONFIRMED, IN_BLOCK
from tests.chain.evm import Evm
from tests.chain.hardhat import Hardhat
from tests.chain.senders import Sending, request
from tests.support.nodes import until


@contextlib.contextmanager
def sender(folder: Path, evm: Evm) -> Iterator[Sending]:
    """A node that waits for final blocks."""
    made = Sending(folder, evm, block_tag="finalized", confirmations=0)
    try:
        yield made
    finally:
        made.node.stop()
        evm.stop()


def states(sending: Sending) -> list[str]:
    return [row.state for row in sending.rows()]


def test_a_transaction_is_confirmed_when_its_block_is_final(tmp_path: Path) -> None:
    evm = Evm("--slots-in-an-epoch", "2")
    with sender(tmp_path, evm) as sending:
        sending.sends("send", request())
        until(lambda: states(sending) == [IN_BLOCK], "a block has it")
        (row,) = sending.rows()
        mined = 0
        while int(evm.rpc("eth_getBlockByNumber", "finalized", False)["number"], 16) < (
            row.block_number
        ):
            assert (states(sending), sending.outcomes()) == ([IN_BLOCK], 0)
            evm.mine()
            mined += 1
        until(lambda: states(sending) == [CONFIRMED], "its block is final")
        until(lambda: sending.outcomes() == 1, "its outcome is told")
        assert mined >= 2


@pytest.mark.thorough
def test_without_final_blocks_a_transaction_is_sent_and_never_confirmed(tmp_path: Path) -> None:
    evm = Hardhat(hardfork="london")
    with sender(tmp_path, evm) as sending:
        sending.sends("send", request())
        until(lambda: states(sending) == [IN_BLOCK], "a block has it")
        evm.mine(30)
        sending.sends("send", request())
        until(lambda: states(sending) == [IN_BLOCK, IN_BLOCK], "the next one is sent, too")
        assert sending.outcomes() == 0
        chain = until(
            lambda: (row := sending.node.call("GET", "/chain/local").json).get("lastError") and row,
            "the reason is shown",
        )
        assert "finalized" in chain["lastError"]
        assert (chain["state"], "confirmedHead" in chain) == ("UNREACHABLE", False)
