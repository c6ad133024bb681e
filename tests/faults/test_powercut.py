"""Short form of the power cuts, and the proof that the test can fail."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disk import PAGE, Cut, Disk, Kind, Record
from tests.faults.powercut import Recorder, Recording, table, try_cuts

_SECONDS, _CUTS, _SEED = 2.0, 16, 3


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fb") as made:
        yield Path(made)


@pytest.fixture(scope="module")
def recording(folder: Path) -> Recording:
    return Recorder(folder).run(_SECONDS)


@pytest.mark.timeout(240)
def test_after_a_power_cut_at_any_moment_what_was_acknowledged_is_there_and_a_node_starts(
    recording: Recording, folder: Path
) -> None:
    work = folder / "honest"
    work.mkdir()
    report = try_cuts(recording, work, _CUTS, _SEED, nodes=1)
    assert report.failed == [], table(report)
    assert report.nodes == 1
    assert report.looked_for > _CUTS * 20


@pytest.mark.timeout(240)
def test_on_a_disk_that_ignores_syncs_the_same_cuts_are_seen_to_lose_events(
    recording: Recording, folder: Path
) -> None:
    work = folder / "lying"
    work.mkdir()
    report = try_cuts(recording, work, _CUTS, _SEED, ignore_syncs=True)
    assert len(report.failed) > _CUTS // 3, table(report)


# ---------------------------------------------------------------- the disk alone

ROOT = Path("/d")
NOTHING, EVERYTHING, SOME = Cut(PAGE, 0.0, False), Cut(PAGE, 1.0, False), Cut(512, 0.5, True)


class Writer:
    """Makes records; the name of every file is a number, which is also its inode."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.do(Kind.MKDIR, inode=1, path="/d")

    def do(
        self, kind: Kind, *, inode: int = 0, at: int = 0, data: bytes = b"", **more: str
    ) -> None:
        number = len(self.records)
        path, second = more.get("path", ""), more.get("second", "")
        found = Record(number, kind, inode, at, number, False, path, second, memoryview(data))
        self.records.append(found)

    def left(self, cut: Cut, seed: int = 1, *, ignore_syncs: bool = False) -> dict[str, bytes]:
        """Return the files after a cut after the last record."""
        disk = Disk(ROOT, self.records, ignore_syncs=ignore_syncs)
        disk.advance(len(self.records))
        with tempfile.TemporaryDirectory() as made:
            target = Path(made) / "t"
            disk.write_to(target, random.Random(seed), cut)
            files = [path for path in target.rglob("*") if path.is_file()]
            return {path.relative_to(target).as_posix(): path.read_bytes() for path in files}


def test_a_synced_file_with_a_synced_name_is_there_whatever_the_disk_chose() -> None:
    made = Writer()
    made.do(Kind.CREATE, inode=2, path="/d/f")
    made.do(Kind.WRITE, inode=2, data=b"x" * 9000)
    made.do(Kind.SYNC, inode=2)
    made.do(Kind.SYNC, inode=1)
    assert made.left(NOTHING) == made.left(EVERYTHING) == {"f": b"x" * 9000}
    assert all(made.left(SOME, seed) == {"f": b"x" * 9000} for seed in range(9))
    assert made.left(NOTHING, ignore_syncs=True) == {}


def test_a_synced_file_whose_name_was_not_synced_may_be_gone() -> None:
    made = Writer()
    made.do(Kind.CREATE, inode=2, path="/d/f")
    made.do(Kind.WRITE, inode=2, data=b"x")
    made.do(Kind.SYNC, inode=2)
    assert made.left(NOTHING) == {}
    assert made.left(EVERYTHING) == {"f": b"x"}


def test_a_write_after_the_last_sync_is_there_in_parts() -> None:
    made = Writer()
    made.do(Kind.CREATE, inode=2, path="/d/f")
    made.do(Kind.WRITE, inode=2, data=b"a" * 2048)
    made.do(Kind.SYNC, inode=2)
    made.do(Kind.SYNC, inode=1)
    made.do(Kind.WRITE, inode=2, data=b"b" * 2048)
    found = {made.left(SOME, seed)["f"] for seed in range(30)}
    assert len(found) > 3
    assert all(each[at : at + 512] in (b"a" * 512, b"b" * 512) for each in found for at in (0, 512))


def test_a_sync_keeps_what_was_written_before_it_began_only() -> None:
    made = Writer()
    made.do(Kind.CREATE, inode=2, path="/d/f")
    made.do(Kind.SYNC, inode=1)
    began = len(made.records)
    made.do(Kind.WRITE, inode=2, data=b"late")
    made.do(Kind.SYNC, inode=2)
    made.records[-1] = made.records[-1]._replace(began=began)
    assert made.left(NOTHING) == {"f": b""}


def test_a_rename_is_done_whole_or_not_at_all() -> None:
    made = Writer()
    made.do(Kind.CREATE, inode=2, path="/d/new")
    made.do(Kind.WRITE, inode=2, data=b"2")
    made.do(Kind.CREATE, inode=3, path="/d/f")
    made.do(Kind.WRITE, inode=3, data=b"1")
    made.do(Kind.SYNC, inode=2)
    made.do(Kind.SYNC, inode=3)
    made.do(Kind.SYNC, inode=1)
    made.do(Kind.RENAME, inode=2, path="/d/new", second="/d/f")
    before, after = {"f": b"1", "new": b"2"}, {"f": b"2"}
    found = [made.left(SOME, seed) for seed in range(20)]
    assert all(each in (before, after) for each in found)
    assert before in found
    assert after in found


def test_what_lies_in_a_folder_whose_name_was_not_synced_may_be_gone_with_it() -> None:
    made = Writer()
    made.do(Kind.MKDIR, inode=5, path="/d/sub")
    made.do(Kind.CREATE, inode=2, path="/d/sub/f")
    made.do(Kind.SYNC, inode=2)
    made.do(Kind.SYNC, inode=5)
    assert made.left(NOTHING) == {}
    made.do(Kind.SYNC, inode=1)
    assert made.left(NOTHING) == {"sub/f": b""}
