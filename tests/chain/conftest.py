"""One chain for all tests of this folder: each node has an account of its own there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chain.evm import Evm
from tests.support.crash_at import CrashAt


@pytest.fixture(scope="session")
def evm() -> Iterator[Evm]:
    """An EVM with a block per transaction; a test that changes this must restore it."""
    chain = Evm()
    yield chain
    chain.stop()


@pytest.fixture(scope="module")
def crash_at(tmp_path_factory: pytest.TempPathFactory) -> CrashAt:
    """The file with the instructions for a node of `crash_at.node`."""
    return CrashAt(tmp_path_factory.mktemp("orders") / "crash-at")
