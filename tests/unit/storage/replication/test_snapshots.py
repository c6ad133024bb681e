"""The missing data of a store: a snapshot, batches, or nothing."""

from __future__ import annotations

import pytest

from fieldbrook.core.errors import JournalDamagedError
from fieldbrook.storage.journal.protocol import Record
from fieldbrook.storage.replication.records import FORMAT, Entry, Kind
from fieldbrook.storage.replication.snapshots import Plan, Snapshot, encode, plan

OLD, NEW = Snapshot("old", 1, 1, b""), Snapshot("new", 1, 1, b"")


def records(*parts: tuple[Kind, int, bytes]) -> list[tuple[int, Entry]]:
    return [
        (position, Entry(FORMAT, kind, 0, 1, "h", number, body, 0))
        for position, (kind, number, body) in enumerate(parts, 10)
    ]


def batches(*numbers: int) -> list[tuple[Kind, int, bytes]]:
    return [(Kind.BATCH, number, b"%d" % number) for number in numbers]


def lacking(*numbers: int) -> list[Record]:
    return [Record(7, number, b"%d" % number) for number in numbers]


def test_a_new_project_lacks_nothing() -> None:
    assert plan(7, [], 0, 0) == Plan(None, [])


def test_a_store_that_lies_behind_lacks_the_last_batches() -> None:
    assert plan(7, records(*batches(3, 4, 5)), 3, 5) == Plan(None, lacking(4, 5))


def test_a_store_that_has_all_lacks_nothing() -> None:
    assert plan(7, records(*batches(3, 4, 5), (Kind.RELEASE, 5, b"")), 5, 5) == Plan(None, [])


def test_a_host_without_the_store_begins_with_the_newest_snapshot() -> None:
    found = records(
        *batches(6),
        (Kind.SNAPSHOT, 4, encode(OLD)),
        *batches(7),
        (Kind.SNAPSHOT, 6, encode(NEW)),
        *batches(8),
    )
    assert plan(7, found, 0, 8) == Plan(NEW, lacking(7, 8))


def test_a_snapshot_alone_is_enough_after_a_release() -> None:
    found = records((Kind.SNAPSHOT, 6, encode(NEW)), (Kind.RELEASE, 6, b""))
    assert plan(7, found, 2, 6) == Plan(NEW, [])


@pytest.mark.parametrize(
    ("found", "stored", "number"),
    [
        (batches(3, 5), 2, 5),  # one in between is missing
        (batches(3, 4), 2, 5),  # the last one is missing
        (batches(4, 5), 2, 5),  # the first one is missing, and there is no snapshot
        ([(Kind.SNAPSHOT, 3, encode(OLD)), *batches(5)], 0, 5),  # the snapshot is too old
        (batches(3, 4), 5, 4),  # the store has a batch that the stream lacks
    ],
)
def test_missing_batches_are_reported_and_nothing_is_applied(
    found: list[tuple[Kind, int, bytes]], stored: int, number: int
) -> None:
    with pytest.raises(JournalDamagedError, match=r"project 7"):
        plan(7, records(*found), stored, number)
