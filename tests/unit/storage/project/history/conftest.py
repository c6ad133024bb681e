"""The history of a project, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.storage.project.history.records import RecordTuple
from fieldbrook.storage.project.history.search import EventFilter, EventPage
from fieldbrook.storage.project.history.tables import HistoryLimits
from fieldbrook.storage.project.store import ProjectStore
from tests.support.stores import reader_of


class History:
    """A store with a history, and a reader of it."""

    def __init__(self, path: Path, limits: HistoryLimits) -> None:
        self.store = ProjectStore(path, 1 << 24, limits=limits)
        self.reader = reader_of(self.store)

    def write(self, *records: RecordTuple) -> None:
        """Write a chunk."""
        self.store.record(records, [b"abc"] * len(records))
        self.store.checkpoint()

    def find(self, wanted: EventFilter, limit: int = 100) -> list[str]:
        """The ids of all matching events, page by page."""
        found, before = [], 0
        while True:
            page = self.page(wanted, before, limit)
            found += [event.record.event_id for event in page.rows]
            before = page.following
            if not before:
                return found

    def page(self, wanted: EventFilter, before: int = 0, limit: int = 100) -> EventPage:
        return self.reader.find_events(wanted, before, limit)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    opened = History(tmp_path / "p", HistoryLimits())
    yield opened
    opened.store.close()
