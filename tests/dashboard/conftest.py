"""Fixtures of the tests of the dashboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.nodes import RunningNode


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """One node for all tests of the folder."""
    running = RunningNode(tmp_path_factory.mktemp("dashboard") / "data")
    yield running
    running.stop()
