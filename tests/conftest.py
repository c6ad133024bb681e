"""Rules that hold for every test."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.tools import require_tool

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

__all__ = ["require_tool"]

# A slow machine is no fault of the code; pytest's time limit catches what hangs.
settings.register_profile("fieldbrook", deadline=None, print_blob=True)
settings.load_profile("fieldbrook")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of the session; who stops it starts it again."""
    from tests.postgres import PostgresServer  # libpq, for those who ask

    server = PostgresServer()
    yield server
    server.remove()


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")


@pytest.fixture(autouse=True)
def no_unexpected_log_line(request: pytest.FixtureRequest) -> Iterator[None]:
    """A line at WARNING or above fails a test that does not take `caplog` to look at it."""
    expects_lines = "caplog" in inspect.signature(request.function).parameters
    collector = _Collector()
    root = logging.getLogger()
    root.addHandler(collector)
    yield
    root.removeHandler(collector)
    if collector.lines and not expects_lines:
        pytest.fail(
            "logged, and no test expected it:\n" + "\n".join(collector.lines), pytrace=False
        )
