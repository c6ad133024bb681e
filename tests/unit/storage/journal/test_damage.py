"""A journal with each byte cut off or flipped: lost records are reported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from fieldbrook.core.errors import JournalDamagedError
from fieldbrook.storage.journal.file import FileJournal
from fieldbrook.storage.journal.protocol import Record, refuse_damage
from fieldbrook.storage.journal.records import BLOCK, HEAD_BYTES, head_at
from fieldbrook.storage.journal.segments import BEGIN, SUFFIX, find, read_segments

SIZE = BEGIN + 3 * BLOCK


class Written(NamedTuple):
    """A journal of several segments, and the records of each of its rounds."""

    folder: Path
    rounds: list[list[Record]]

    @property
    def records(self) -> list[Record]:
        return [record for part in self.rounds for record in part]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """A journal with three segments in use. The first file was used before, and has old records."""
    folder = tmp_path / "worker"
    journal = FileJournal(folder, SIZE, 4)
    journal.begin()
    numbers = count(1)
    for _ in range(4):
        journal.add(1, next(numbers), b"old" * 7)
        journal.sync()
    journal.release(1, 4)
    for _ in range(9):
        journal.add(1, next(numbers), b"older" * 5)
        journal.sync()
    journal.release(1, 99)
    rounds, sizes = [], ((30, 0, 200), (4_200,), (7, 60), (1,), (90, 8), (40,))
    for sizes_of_round in sizes:
        records = [Record(size % 3 + 1, next(numbers), b"~" * size) for size in sizes_of_round]
        for record in records:
            journal.add(*record)
        journal.sync()
        rounds.append(records)
    journal.close()
    found, damage = read(folder)
    assert not damage
    before = len(found) - sum(map(len, rounds))
    written = Written(folder, [*([record] for record in found[:before]), *rounds])
    assert found == written.records
    return written


def read(folder: Path) -> tuple[list[Record], list[JournalDamagedError]]:
    damage: list[JournalDamagedError] = []
    return list(read_segments(find(folder, folder.name), damage.append)), damage


def check(written: Written) -> None:
    """Check that only written records are read; without damage all but the last round must
    exist."""
    found, damage = read(written.folder)
    if damage:
        left = iter(written.records)
        assert all(record in left for record in found)
    else:
        assert found == written.records[: len(found)]
        assert len(found) >= len(written.records) - len(written.rounds[-1])


def positions(path: Path) -> Iterator[int]:
    """Return the offsets of all bytes that are not zero, of those around them, and a sample of the
    others."""
    data = path.read_bytes()
    for place in range(len(data)):
        if any(data[max(place - 3, 0) : place + 4]) or place % 61 == 0:
            yield place


def test_a_flipped_byte_is_told_unless_it_is_in_the_last_round(written: Written) -> None:
    for path in written.folder.glob(f"*{SUFFIX}"):
        with path.open("r+b", buffering=0) as file:
            for place in positions(path):
                byte = os.pread(file.fileno(), 1, place)
                os.pwrite(file.fileno(), bytes([byte[0] ^ 1 << place % 8]), place)
                check(written)
                os.pwrite(file.fileno(), byte, place)
    assert read(written.folder) == (written.records, [])


def test_a_zeroed_sector_is_told_unless_it_is_in_the_last_round(written: Written) -> None:
    for path in written.folder.glob(f"*{SUFFIX}"):
        data = path.read_bytes()
        for place in range(0, len(data), 512):
            path.write_bytes(data[:place] + bytes(512) + data[place + 512 :])
            check(written)
        path.write_bytes(data)


def test_a_file_cut_off_at_any_byte_is_told(written: Written) -> None:
    newest = max(find(written.folder, "worker"), key=lambda found: found.segment)
    for path in written.folder.glob(f"*{SUFFIX}"):
        data = path.read_bytes()
        for place in reversed(list(positions(path))):
            os.truncate(path, place)
            found, damage = read(written.folder)
            assert damage or found == written.records
            left = iter(written.records)
            assert all(record in left for record in found)
            if path == newest.path:
                assert found == written.records[: len(found)]
        path.write_bytes(data)


def test_a_missing_segment_is_told(written: Written) -> None:
    for path in written.folder.glob(f"*{SUFFIX}"):
        hidden = path.rename(path.with_suffix(".hidden"))
        found, damage = read(written.folder)
        assert damage or found == written.records[: len(found)]
        hidden.rename(path)


def test_damage_names_what_is_known_and_everything_else_is_read(written: Written) -> None:
    path, place = find_batch(written, b"~" * 4_200)
    flip(path, place + 4_123)
    with pytest.raises(JournalDamagedError, match=r"batch \d+ of project 1"):
        list(read_segments(find(written.folder, "worker"), refuse_damage))
    found, damage = read(written.folder)
    (lost,) = (record for record in written.records if record not in found)
    (error,) = damage
    assert error.details["project"] == lost.project_id == 4_200 % 3 + 1
    assert error.details["number"] == lost.number
    assert error.details["file"] == path.name
    assert len(found) == len(written.records) - 1


def test_a_damaged_head_of_a_record_hides_the_rest_of_its_round_only(written: Written) -> None:
    path, place = find_batch(written, b"~" * 30)
    flip(path, place - HEAD_BYTES + 5)
    found, damage = read(written.folder)
    lost = [record for record in written.records if record not in found]
    assert [len(record.batch) for record in lost] == [30, 0, 200]
    assert [error.details["number"] for error in damage] == [0]
    assert "unknown batches" in str(damage[0])


def test_a_round_is_damaged_when_a_later_one_of_the_last_segment_is_whole(
    tmp_path: Path,
) -> None:
    journal = FileJournal(tmp_path / "worker", SIZE)
    journal.begin()
    for number in (1, 2, 3):
        journal.add(1, number, b"~" * number)
        journal.sync()
    journal.close()
    (path,) = (found.path for found in find(tmp_path / "worker", "worker") if found.segment)
    flip(path, BEGIN + BLOCK)
    found, damage = read(tmp_path / "worker")
    assert [record.number for record in found] == [1, 3]
    assert len(damage) == 1
    flip(path, BEGIN + 2 * BLOCK)
    assert [record.number for record in read(tmp_path / "worker")[0]] == [1]
    assert read(tmp_path / "worker")[1] == []


def test_files_with_damage_are_kept_aside_and_the_journal_goes_on(written: Written) -> None:
    path, place = find_batch(written, b"~" * 4_200)
    flip(path, place)
    content = path.read_bytes()
    journal = FileJournal(written.folder, SIZE, 4)
    list(journal.records(lambda _error: None))
    journal.begin()
    journal.add(9, 1, b"new")
    journal.sync()
    journal.close()
    (aside,) = written.folder.glob("*.damaged")
    assert aside.read_bytes() == content
    assert read(written.folder) == ([Record(9, 1, b"new")], [])


def find_batch(written: Written, batch: bytes) -> tuple[Path, int]:
    """Return the file with a record of this batch, and the offset of the batch."""
    (record,) = (record for record in written.records if record.batch == batch)
    for path in written.folder.glob(f"*{SUFFIX}"):
        data = path.read_bytes()
        at = data.find(batch, BEGIN)
        while at >= 0:
            head = head_at(memoryview(data), at - HEAD_BYTES)
            if head is not None and head.number == record.number:
                return path, at
            at = data.find(batch, at + 1)
    raise AssertionError("no such batch")


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)
