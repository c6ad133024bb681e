"""All EVMs, for tests of behaviour that must be the same on each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chain.evm import Evm
from tests.chain.hardhat import Hardhat

EVMS = [
    pytest.param(Evm, id="anvil"),
    pytest.param(Hardhat, id="hardhat", marks=pytest.mark.thorough),
]


def running(kind: type[Evm]) -> Iterator[Evm]:
    """Start an EVM, and stop it at the end; for a fixture."""
    made = kind()
    yield made
    made.stop()
