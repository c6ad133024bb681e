"""Fixtures for the tests of this folder: the management server and the accounts that call it, a
node and an EVM chain that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fieldbrook.workbench import scaffold
from tests.support.management import ada, bob, root, server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chain.evm import Evm
    from tests.chain.proxy import Proxy
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


@pytest.fixture
def proxy(evm: Evm) -> Iterator[Proxy]:
    """A proxy in front of the chain that can fail on demand."""
    from tests.chain.proxy import Proxy

    made = Proxy(evm.url)
    yield made
    made.close()


@pytest.fixture
def meter(tmp_path: Path) -> Path:
    """The folder of a new applet in the WebAssembly text format."""
    folder = tmp_path / "meter"
    scaffold.create("meter", "wat", folder)
    return folder
