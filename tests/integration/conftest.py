"""Fixtures for the tests of this folder: the management server and the accounts that call it, a
node and an EVM chain that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.management import ada, bob, root, server

if TYPE_CHECKING:
    from tests.chain.evm import Evm
    from tests.support.nodes import RunningNode, StartNode

__all__ = ["ada", "bob", "root", "server"]


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    return start_module_node()


@pytest.fixture(scope="module")
def evm() -> Iterator[Evm]:
    from tests.chain.evm import Evm  # web3's libraries, for those who ask

    made = Evm()
    yield made
    made.stop()
