"""Processes die at every step of a send until it is committed: the chain has all committed
transactions, with consecutive nonces, and each has one outcome."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chain.deaths import WHILE_A_LEASE, Death, dies_in_a_send, mortal
from tests.chain.evm import Evm
from tests.chain.senders import Sending
from tests.support.crash_at import CrashAt


@pytest.fixture(scope="module")
def sending(
    tmp_path_factory: pytest.TempPathFactory, evm: Evm, crash_at: CrashAt
) -> Iterator[Sending]:
    with mortal(tmp_path_factory.mktemp("faults"), evm, crash_at) as made:
        yield made


@pytest.mark.parametrize("death", WHILE_A_LEASE, ids=lambda death: "-".join(map(str, death)))
@pytest.mark.thorough("node")
def test_a_death_while_a_transaction_is_a_lease_loses_none_and_doubles_none(
    sending: Sending, crash_at: CrashAt, death: Death
) -> None:
    dies_in_a_send(sending, crash_at, death)
