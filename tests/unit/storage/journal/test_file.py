"""The folder of a journal: its lock, its files, disks that fail or fill up, kills of its writer."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fieldbrook.core.errors import (
    JournalBusyError,
    JournalFullError,
    JournalOutcomeError,
    StoreError,
)
from fieldbrook.storage.journal.file import FileJournal
from fieldbrook.storage.journal.protocol import Record
from fieldbrook.storage.journal.records import BLOCK
from fieldbrook.storage.journal.segments import BEGIN, NEW_SUFFIX, SUFFIX
from tests.support.disks import fill, small_disk
from tests.unit.storage.journal import writer

SIZE = BEGIN + 4 * BLOCK


def started(folder: Path, size: int = SIZE) -> FileJournal:
    journal = FileJournal(folder, size)
    journal.begin()
    return journal


def put(journal: FileJournal, number: int, size: int = 3_000) -> None:
    journal.add(1, number, bytes(size))
    journal.sync()


def records_in(folder: Path, size: int = SIZE) -> list[Record]:
    journal = FileJournal(folder, size)
    try:
        return list(journal.records())
    finally:
        journal.close()


def test_a_second_journal_on_the_folder_is_refused_in_words(tmp_path: Path) -> None:
    journal = started(tmp_path / "0")
    with pytest.raises(JournalBusyError, match="another process uses this journal"):
        FileJournal(tmp_path / "0", SIZE)
    journal.close()
    FileJournal(tmp_path / "0", SIZE).close()


def test_files_of_another_worker_are_refused(tmp_path: Path) -> None:
    started(tmp_path / "a").close()
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(StoreError, match="belongs to the journal of worker 'a'"):
        FileJournal(tmp_path / "b", SIZE)


def test_two_files_are_enough_and_no_file_grows_or_shrinks(tmp_path: Path) -> None:
    journal = started(tmp_path / "0")
    for number in range(1, 50):
        put(journal, number)
        journal.release(1, number)
    assert [path.stat().st_size for path in (tmp_path / "0").iterdir()] == [SIZE, SIZE]
    journal.close()


def test_a_journal_with_segments_of_another_size_is_read_and_then_replaced(tmp_path: Path) -> None:
    journal = started(tmp_path / "0")
    for number in range(1, 12):
        put(journal, number)
    journal.close()
    journal = FileJournal(tmp_path / "0", SIZE + BLOCK)
    assert len(list(journal.records())) == 11
    journal.begin()
    put(journal, 12)
    journal.close()
    assert {path.stat().st_size for path in (tmp_path / "0").iterdir()} == {SIZE + BLOCK}
    assert [record.number for record in records_in(tmp_path / "0", SIZE + BLOCK)] == [12]


def test_a_file_that_was_being_made_at_a_kill_is_made_again(tmp_path: Path) -> None:
    started(tmp_path / "0").close()
    (tmp_path / "0" / f"2{NEW_SUFFIX}").write_bytes(bytes(100))
    assert records_in(tmp_path / "0") == []
    journal = started(tmp_path / "0")
    for number in range(1, 12):
        put(journal, number)
    journal.close()
    assert {path.suffix for path in (tmp_path / "0").iterdir()} == {SUFFIX}
    assert len(records_in(tmp_path / "0")) == 11


def test_a_full_disk_stops_no_commit_while_segments_are_released(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        journal = started(disk / "0")
        filler = fill(disk)
        for number in range(1, 30):
            put(journal, number)
            journal.release(1, number - 4)
        number = 30
        with pytest.raises(JournalFullError, match="disk is full"):
            while True:
                put(journal, number)
                number += 1
        assert journal.low
        filler.unlink()
        journal.release(1, 26)
        put(journal, number)
        journal.close()
        assert [record.number for record in records_in(disk / "0")][-1] == number


def test_after_a_failed_disk_records_are_refused_until_the_failed_ones_can_never_be_read(
    tmp_path: Path,
) -> None:
    failing = False

    def sync(descriptor: int) -> None:
        if failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fdatasync(descriptor)

    journal = FileJournal(tmp_path / "0", SIZE, 3, sync)
    journal.begin()
    put(journal, 1)
    failing = True
    with pytest.raises(JournalOutcomeError, match="input/output error"):
        put(journal, 2)
    for _ in range(5):
        with pytest.raises(StoreError):
            journal.add(1, 2, b"again")
        journal.sync()
    failing = False
    journal.add(1, 2, b"the second")
    journal.close()
    assert [record.number for record in records_in(tmp_path / "0")] == [1]


def test_a_store_is_not_told_to_do_without_the_journal_while_failed_records_may_be_read(
    tmp_path: Path,
) -> None:
    failures: list[int] = []

    def sync(descriptor: int) -> None:
        if failures:
            raise OSError(failures.pop(), "no")
        os.fdatasync(descriptor)

    journal = FileJournal(tmp_path / "0", SIZE, 2, sync)
    journal.begin()
    for number in range(1, 8):
        put(journal, number)
    failures.append(errno.EIO)
    with pytest.raises(JournalOutcomeError, match="no segment"):
        put(journal, 8)
    for size in (1, 2 * SIZE):
        with pytest.raises(StoreError, match="no segment") as raised:
            journal.add(1, 8, bytes(size))
        assert not isinstance(raised.value, JournalFullError)
    journal.release(1, 4)
    put(journal, 8, 17)
    journal.close()
    assert [len(record.batch) for record in records_in(tmp_path / "0")] == [3_000] * 3 + [17]


def test_a_segment_that_cannot_be_begun_fails_the_round(tmp_path: Path) -> None:
    failures: list[int] = []

    def sync(descriptor: int) -> None:
        if failures:
            raise OSError(failures.pop(), "no")
        os.fdatasync(descriptor)

    journal = FileJournal(tmp_path / "0", SIZE, 3, sync)
    journal.begin()
    for number in (1, 2, 3):
        put(journal, number, 4_000)
    journal.add(1, 4, b"fits")
    failures.append(errno.EIO)
    with pytest.raises(StoreError):
        journal.add(2, 1, bytes(9_000))
    with pytest.raises(StoreError, match="no segment of the journal can be written"):
        journal.sync()
    journal.add(1, 4, b"again")
    journal.sync()
    journal.close()
    found = records_in(tmp_path / "0")
    assert [record.number for record in found] == [1, 2, 3, 4]
    assert found[-1].batch == b"again"


def test_what_was_synced_survives_the_kill_of_a_process_at_any_moment(tmp_path: Path) -> None:
    folder, told = tmp_path / "0", 0
    for written in (1, 5, 23, 60, 111):
        first = told + 1
        command = [sys.executable, "-P", writer.__file__, str(folder), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(written):
                told = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            for line in child.stdout:
                told = int(line) if line.endswith(b"\n") else told
        found = [record.number for record in records_in(folder, writer.SIZE)]
        assert found == list(range(found[0], found[-1] + 1))
        assert found[0] <= max(told - writer.KEPT, first)
        assert found[-1] >= told
        told = found[-1]
