"""Fixtures for the tests of this folder."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import pytest

from fieldbrook.observability import metrics


@pytest.fixture
def own_row() -> Iterator[None]:
    """A row of metrics in which only this test counts."""
    before = metrics.here.row
    metrics.here.row = memoryview(array("d", bytes(metrics.ROW_BYTES)))
    yield
    metrics.here.row = before
