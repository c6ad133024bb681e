"""Events of the history that can be replayed, on a real LMDB."""

from __future__ import annotations

from pathlib import Path

from fieldbrook.storage.project.history.records import event_record
from fieldbrook.storage.project.history.replays import ReplayFilter
from fieldbrook.storage.project.history.tables import HistoryLimits
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import ProjectStore


def test_payloads_stay_beside_their_events_however_often_keeping_them_is_turned_off(
    tmp_path: Path,
) -> None:
    wanted = ReplayFilter(0, 1 << 62)
    for turn, room in enumerate((1 << 20, 0, 1 << 20)):
        store = ProjectStore(tmp_path / "p", 1 << 24, limits=HistoryLimits(1 << 20, room))
        for n in range(2):
            name = f"{turn}-{n}"
            store.record(
                [event_record(("T", 7, name, b"abc", 1, 0, ""), 2, ())],
                [b"abc" if n else b"x" * 9_000],
            )
        store.close()
    reader = ProjectStoreReader(tmp_path / "p")
    found, more = reader.replayable(wanted, 0, 100)
    reader.close()
    assert more == 0
    # Turning it off has removed the stored events; an event that is too large is never stored.
    assert [event.kept for event in found] == [False, False, False, False, False, True]
    store = ProjectStore(tmp_path / "p", 1 << 24)
    record, payload = store.replayable(found[-1].place) or (None, b"")
    assert record is not None
    assert (record.event_id, payload) == ("2-1", b"abc")
    assert store.replayable(found[0].place) is None
    assert store.replayable(1 << 40) is None
    store.close()
