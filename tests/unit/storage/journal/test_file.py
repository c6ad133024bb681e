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
    JournalFailedError,
    JournalFullError,
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


@pytest.mark.parametrize("numbers", [range(1, 3), range(1, 6)], ids=["in a round", "in a switch"])
def test_a_journal_whose_disk_has_failed_writes_nothing_more(
    numbers: range, tmp_path: Path
) -> None:
    fails = False

    def sync(descriptor: int) -> None:
        if fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fdatasync(descriptor)

    journal = FileJournal(tmp_path / "0", SIZE, 3, sync)
    journal.begin()
    for number in numbers[:-1]:
        put(journal, number, 4_000)
    fails = True
    with pytest.raises(JournalFailedError, match="input/output error"):
        put(journal, numbers[-1], 4_000)
    fails = False
    left = {path: path.read_bytes() for path in (tmp_path / "0").iterdir()}
    with pytest.raises(JournalFailedError, match="failed before"):
        put(journal, numbers[-1], 4_000)
    journal.release(1, numbers[-1])
    journal.close()
    assert {path: path.read_bytes() for path in (tmp_path / "0").iterdir()} == left
    found = [record.number for record in records_in(tmp_path / "0")]
    assert found in (list(numbers), list(numbers[:-1]))


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
