"""Both databases of applets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.sql import databases as d


@pytest.fixture(params=d.BACKENDS)
def backend(request: pytest.FixtureRequest) -> d.Backend:
    if request.param == "sqlite":
        return d.Backend()
    return d.Backend(request.getfixturevalue("postgres").dsn)


@pytest.fixture
def db(backend: d.Backend, tmp_path: Path) -> Iterator[d.Database]:
    """A database during an event."""
    database = backend.database(tmp_path)
    database.begin_event()
    yield database
    database.close()
