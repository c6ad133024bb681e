"""Which batches of a project a rescue can bring."""

from __future__ import annotations

import pytest

from fieldbrook.cluster.rescue import _last_complete
from fieldbrook.storage.replication.records import FORMAT, Entry, Kind

BATCH, SNAPSHOT, RELEASE = Kind.BATCH, Kind.SNAPSHOT, Kind.RELEASE


@pytest.mark.parametrize(
    ("records", "stored", "complete"),
    [
        ([], 0, 0),
        ([], 4, 4),
        ([(BATCH, 1), (BATCH, 2)], 0, 2),
        ([(BATCH, 1), (BATCH, 3)], 0, 1),
        ([(SNAPSHOT, 6), (RELEASE, 6)], 0, 6),
        ([(SNAPSHOT, 6), (RELEASE, 6)], 8, 8),
        ([(SNAPSHOT, 6), (BATCH, 7), (BATCH, 9)], 0, 7),
        ([(SNAPSHOT, 6), (BATCH, 7)], 7, 7),
        ([(BATCH, 6), (SNAPSHOT, 4), (BATCH, 7)], 0, 4),
        ([(BATCH, 7)], 0, 0),
    ],
)
def test_the_last_batch_is_that_up_to_which_none_is_missing(
    records: list[tuple[Kind, int]], stored: int, complete: int
) -> None:
    found = [
        (position, Entry(FORMAT, kind, 0, 1, "h", number, b"", 0))
        for position, (kind, number) in enumerate(records, 10)
    ]
    assert _last_complete(found, stored) == complete
