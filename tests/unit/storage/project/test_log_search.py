"""Searching the applet log, on a real LMDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.storage.lmdb.environment import open_environment
from fieldbrook.storage.lmdb.rows import RowTable
from fieldbrook.storage.project import log_search
from fieldbrook.storage.project.log_search import LogFilter, search_backwards, search_forwards
from fieldbrook.storage.project.rows import LOGS, LogRow

ERROR, INFO = 2, 4


class Log:
    """A log with one row for each (time, level, text)."""

    def __init__(self, path: Path, *rows: tuple[int, int, str]) -> None:
        self.environment = open_environment(path, map_size=1 << 24)
        self.table = RowTable(self.environment, LOGS, LogRow, 100_000, create=True)
        made = [
            LogRow(time, level, "wasmCode", 3 + n % 2, "a", f"e{n}", text)
            for n, (time, level, text) in enumerate(rows)
        ]
        with self.environment.begin(write=True) as txn:
            self.table.append(txn, made)
        self.table.committed(len(made))

    def newest_first(self, wanted: LogFilter, limit: int = 100) -> list[str]:
        """Return the texts of all matching rows, page by page."""
        found: list[str] = []
        before = 0
        with self.environment.begin() as txn:
            while True:
                page = search_backwards(txn, self.table, wanted, before, limit)
                found += [row.row.text for row in page.rows]
                before = page.following
                if not before:
                    return found

    def oldest_first(self, wanted: LogFilter, limit: int = 100) -> list[str]:
        found: list[str] = []
        after = 0
        with self.environment.begin() as txn:
            while True:
                page = search_forwards(txn, self.table, wanted, after, limit)
                if page.following == after:
                    return found
                found += [row.row.text for row in page.rows]
                after = page.following

    def bound(self, limit: int) -> int:
        with self.environment.begin() as txn:
            return self.table.upper_bound(txn, lambda row: row.time_ms, limit)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    rows = [(n * 10, ERROR if n % 5 == 0 else INFO, f"Row {n}") for n in range(20)]
    made = Log(tmp_path / "l", *rows)
    yield made
    made.environment.close()


def test_a_page_tells_the_newest_row_whether_it_matches_or_not(log: Log) -> None:
    with log.environment.begin() as txn:
        (newest,) = search_backwards(txn, log.table, LogFilter(), 0, 1).rows
        for wanted in (LogFilter(), LogFilter(contains="nowhere"), LogFilter(end=50)):
            assert search_backwards(txn, log.table, wanted, 5, 1).newest == newest.sequence


def test_each_filter_selects_its_rows_in_both_directions(log: Log) -> None:
    for wanted, numbers in (
        (LogFilter(), range(20)),
        (LogFilter(level=ERROR), range(0, 20, 5)),
        (LogFilter(level=INFO), range(20)),
        (LogFilter(contains="rOW 1"), [1, *range(10, 20)]),
        (LogFilter(contains=".*"), []),
        (LogFilter(event_id="e7"), [7]),
        (LogFilter(instance_id=4), range(1, 20, 2)),
        (LogFilter(begin=50), range(5, 20)),
        (LogFilter(end=50), range(5)),
        (LogFilter(begin=41, end=70), [5, 6]),
        (LogFilter(begin=1_000), []),
    ):
        expected = [f"Row {n}" for n in numbers]
        assert log.oldest_first(wanted) == expected
        assert log.newest_first(wanted) == expected[::-1]


def test_pages_add_up_although_each_search_is_bounded(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "SCAN_ROWS", 3)
    for limit in (1, 2, 100):
        assert len(log.newest_first(LogFilter(), limit)) == 20
        assert log.newest_first(LogFilter(event_id="e0"), limit) == ["Row 0"]
        assert log.oldest_first(LogFilter(event_id="e19"), limit) == ["Row 19"]


@given(
    times=st.lists(st.integers(0, 50), max_size=30).map(sorted),
    limit=st.integers(-1, 51),
    dropped=st.integers(0, 30),
)
def test_the_bound_is_the_first_row_above_it_whatever_rows_are_gone(
    times: list[int], limit: int, dropped: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = Log(tmp_path_factory.mktemp("log"), *((time, INFO, "") for time in times))
    with log.environment.begin(write=True) as txn:
        log.table.remove(txn, lambda row: row.event_id in {f"e{n}" for n in range(dropped)})
    kept = [(n + 1, time) for n, time in enumerate(times) if n >= dropped]
    bound = log.bound(limit)
    log.environment.close()
    assert all((number >= bound) == (time > limit) for number, time in kept)


def test_the_bound_of_an_empty_log_is_below_nothing(tmp_path: Path) -> None:
    log = Log(tmp_path / "l")
    assert log.newest_first(LogFilter(begin=1, end=9)) == log.oldest_first(LogFilter(begin=1)) == []
    log.environment.close()
