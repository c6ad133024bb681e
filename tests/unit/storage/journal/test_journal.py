"""The promises of every journal: one suite for files and memory."""

from __future__ import annotations

import pytest

from fieldbrook.core.errors import JournalFailedError, JournalFullError
from fieldbrook.storage.journal.protocol import Journal, Record
from tests.unit.storage.journal.conftest import RECORD_BYTES, ROUNDS, SEGMENTS, Kept

BATCH = b"x" * RECORD_BYTES


@pytest.fixture
def journal(kept: Kept) -> Journal:
    kept.journal.begin()
    return kept.journal


def synced(journal: Journal, *records: Record) -> list[Record]:
    for record in records:
        journal.add(*record)
    journal.sync()
    return list(records)


def fill(journal: Journal, project_id: int = 1, number: int = 1) -> int:
    """Sync batches until the journal is full; return the number of the first that is refused."""
    while True:
        try:
            synced(journal, Record(project_id, number, BATCH))
        except JournalFullError:
            return number
        number += 1


@pytest.mark.usefixtures("journal")
def test_what_was_synced_is_read_after_a_crash_in_its_order(kept: Kept) -> None:
    written = synced(kept.journal, Record(7, 1, b"one"), Record(8, 1, b""), Record(7, 2, b"two"))
    written += synced(kept.journal, Record(8, 2, BATCH), Record(1 << 63, 1 << 40, b"\0" * 9))
    written += synced(kept.journal, *(Record(5, number, BATCH) for number in range(1, 5)))
    kept.journal.add(7, 3, b"not synced")
    assert list(kept.crash().records()) == written


def test_a_new_journal_is_empty_and_a_sync_of_nothing_writes_nothing(kept: Kept) -> None:
    assert list(kept.journal.records()) == []
    kept.journal.begin()
    kept.journal.sync()
    assert list(kept.crash().records()) == []


def test_a_journal_that_begins_anew_has_no_records(kept: Kept, journal: Journal) -> None:
    synced(journal, *(Record(1, number, BATCH) for number in range(1, 4)))
    kept.crash().begin()
    assert not kept.journal.oldest()
    written = synced(kept.journal, Record(1, 4, b"new"))
    assert list(kept.crash().records()) == written


def test_a_journal_can_be_read_again_when_the_reader_was_killed(
    kept: Kept, journal: Journal
) -> None:
    written = synced(journal, Record(1, 1, b"a"), Record(2, 1, b"b"))
    next(iter(kept.crash().records()))
    assert list(kept.crash().records()) == written


def test_a_record_is_refused_when_no_segment_is_free_and_the_rest_stays(
    kept: Kept, journal: Journal
) -> None:
    refused = fill(journal)
    assert refused == ROUNDS * SEGMENTS + 1
    assert [record.number for record in kept.crash().records()] == list(range(1, refused))


def test_a_released_segment_is_used_again(kept: Kept, journal: Journal) -> None:
    number = fill(journal)
    for _ in range(3 * SEGMENTS):
        oldest = journal.oldest()
        assert list(oldest) == [1]
        assert number - oldest[1] == (SEGMENTS - 1) * ROUNDS + 1
        journal.release(1, oldest[1] - 1)
        with pytest.raises(JournalFullError):
            journal.add(1, number, BATCH)
        journal.release(1, oldest[1])
        number = fill(journal, number=number)
    numbers = [record.number for record in kept.crash().records()]
    assert numbers == list(range(numbers[0], number))
    assert number - numbers[0] == SEGMENTS * ROUNDS


def test_a_segment_is_free_when_all_its_projects_have_released_it(journal: Journal) -> None:
    for number in range(1, ROUNDS + 1):
        synced(journal, Record(number % 2, number, BATCH))
    fill(journal, project_id=9)
    assert journal.oldest() == {0: ROUNDS, 1: ROUNDS - 1}
    journal.release(0, ROUNDS)
    assert journal.oldest() == {1: ROUNDS - 1}
    journal.release(1, 1 << 40)
    assert list(journal.oldest()) == [9]
    synced(journal, Record(1, ROUNDS + 1, BATCH))


def test_a_journal_is_low_before_it_is_full(journal: Journal) -> None:
    number, low = 0, journal.low
    assert not low
    while not low:
        number += 1
        synced(journal, Record(1, number, BATCH))
        low = journal.low
    synced(journal, Record(1, number + 1, BATCH))
    journal.release(1, number)
    low = journal.low
    assert not low


def test_a_record_larger_than_a_segment_is_refused_and_others_are_not(
    kept: Kept, journal: Journal
) -> None:
    journal.add(1, 1, b"before")
    with pytest.raises(JournalFullError):
        journal.add(2, 1, BATCH * 2 * ROUNDS)
    journal.add(3, 1, b"behind")
    journal.sync()
    assert [record.project_id for record in kept.crash().records()] == [1, 3]


def test_records_that_share_a_sync_are_refused_when_they_fill_more_than_a_segment(
    kept: Kept, journal: Journal
) -> None:
    written = synced(journal, Record(1, 1, BATCH))
    count = 0
    with pytest.raises(JournalFullError):
        for count in range(100):
            journal.add(2, count + 1, BATCH)
    journal.sync()
    written += [Record(2, number, BATCH) for number in range(1, count + 1)]
    assert count >= ROUNDS
    assert list(kept.crash().records()) == written


def test_after_a_failed_sync_nothing_is_written_and_the_next_process_sees_what_happened(
    kept: Kept, journal: Journal
) -> None:
    written = synced(journal, Record(1, 1, b"a"))
    failed = [Record(1, 2, b"failed" * 999), Record(2, 1, b"failed")]
    for record in failed:
        journal.add(*record)
    kept.fail_syncs()
    for _ in range(3):
        with pytest.raises(JournalFailedError):
            journal.sync()
    found = list(kept.crash().records())
    happened = found[len(written) :]
    assert found[: len(written)] == written
    assert happened == failed[: len(happened)]
    kept.journal.begin()
    assert not kept.journal.oldest()
    written = synced(kept.journal, Record(1, 3, b"b"))
    assert list(kept.crash().records()) == written


def test_a_sync_that_would_succeed_after_a_failed_one_is_refused(
    kept: Kept, journal: Journal
) -> None:
    journal.add(1, 1, b"failed")
    kept.fail_syncs()
    with pytest.raises(JournalFailedError):
        journal.sync()
    kept.repair()
    with pytest.raises(JournalFailedError):
        synced(journal, Record(1, 2, b"next"))
