"""One sync for several projects: projects without space in the journal, and failures of the
disk."""

from __future__ import annotations

from typing import NoReturn

import pytest

from fieldbrook.actors.shared_journal import DISK_FAILED, ProjectRecords, SharedJournal
from fieldbrook.storage.journal.memory import MemoryJournal


class EndedError(BaseException):
    """Raised where the process would end."""


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> MemoryJournal:
    def end(status: int) -> NoReturn:
        raise EndedError(status)

    monkeypatch.setattr("fieldbrook.actors.shared_journal.os._exit", end)
    made = MemoryJournal(segment_bytes=100, segments=3)
    made.begin()
    return made


def records(shared: SharedJournal, project_id: int, number: int, size: int) -> ProjectRecords:
    made = ProjectRecords(project_id, shared)
    made.add(project_id, number, bytes(size))
    return made


def read(journal: MemoryJournal) -> list[tuple[int, int]]:
    journal.crash()
    return [(record.project_id, record.number) for record in journal.records()]


def test_records_that_do_not_fit_into_one_segment_are_synced_apart(journal: MemoryJournal) -> None:
    shared = SharedJournal(journal)
    assert shared.commit([records(shared, n, 1, 60) for n in range(3)]) == set()
    assert journal.syncs == 3
    assert read(journal) == [(0, 1), (1, 1), (2, 1)]


def test_a_record_without_room_is_named_and_the_others_are_written(journal: MemoryJournal) -> None:
    shared = SharedJournal(journal)
    sizes = {1: 60, 2: 101, 3: 30, 4: 60, 5: 60, 6: 60}
    assert shared.commit([records(shared, n, 1, size) for n, size in sizes.items()]) == {2, 6}
    assert read(journal) == [(1, 1), (3, 1), (4, 1), (5, 1)]


def test_a_process_whose_journal_fails_ends_before_anybody_is_answered(
    journal: MemoryJournal, caplog: pytest.LogCaptureFixture
) -> None:
    shared = SharedJournal(journal)
    journal.failing = True
    with pytest.raises(EndedError) as ended:
        shared.commit([records(shared, 1, 1, 10)])
    assert ended.value.args == (DISK_FAILED,)
    assert "the worker ends" in caplog.text
