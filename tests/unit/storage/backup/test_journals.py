"""Batches that are only in a journal: they are in backups, and verification counts and names
them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.storage.backup import backup, journals
from fieldbrook.storage.backup.verify import verify
from fieldbrook.storage.backup.verify_in_child import verify_in_child
from fieldbrook.storage.journal.file import FileJournal
from fieldbrook.storage.journal.protocol import refuse_damage
from fieldbrook.storage.journal.segments import find, read_segments
from fieldbrook.storage.journal.unapplied import unapplied_files
from fieldbrook.storage.lmdb.codec import encode_record
from fieldbrook.storage.project.commit.batch import Batch
from fieldbrook.storage.project.history.records import event_record
from fieldbrook.storage.project.outbox import OutboxEntry, waiting_projects
from fieldbrook.storage.project.store import ProjectStore
from tests.unit.storage.backup.data_folder import KEY, MAP, project_folder

SEGMENT_BYTES = 1 << 15


class Worker:
    """A worker whose stores lack the last batches."""

    def __init__(self, data: Path) -> None:
        self.folder = data / "journal" / "0"
        self.project_id = int(project_folder(data).name)
        self.journal = FileJournal(self.folder, SEGMENT_BYTES)
        self.journal.begin()
        store = self._store = ProjectStore(
            project_folder(data), MAP, journal=self.journal, project_id=self.project_id
        )
        for number in range(1, 6):  # batches 2 to 6
            store.overlay[KEY] = b"number %d" % number
            store.record([event_record(("T", 1, f"event-{number}", b"", 1, 0, ""), 2, [])])
            store.commit()
            if number == 2:
                store.checkpoint()
        self.batches = 3
        self.number = store.number
        self._store._stored.close()  # nothing more is written into the store

    def spoil(self, number: int) -> None:
        """Damage a byte of a batch that leaves it readable."""
        found = find(self.folder, "0")
        (record,) = (r for r in read_segments(found, refuse_damage) if r.number == number)
        for path in (one.path for one in found):
            path.write_bytes(
                path.read_bytes().replace(
                    record.batch, record.batch.replace(b"number", b"slumber"[1:])
                )
            )


@pytest.fixture
def worker(data: Path) -> Worker:
    return Worker(data)


def value(folder: Path) -> bytes | None:
    store = ProjectStore(folder, MAP)
    try:
        return store.read(KEY)
    finally:
        store.close()


@pytest.mark.parametrize("runs", [True, False])
def test_a_backup_has_what_only_a_journal_has(
    runs: bool, worker: Worker, data: Path, tmp_path: Path
) -> None:
    if not runs:
        worker.journal.close()
    made = backup.back_up(data, tmp_path / "b.tar.gz")
    assert made.damaged == []
    backup.restore(tmp_path / "b.tar.gz", tmp_path / "copy")
    assert not (tmp_path / "copy" / "journal").exists()
    found = verify(tmp_path / "copy")
    assert found.defects == []
    assert found.waiting == worker.batches
    assert waiting_projects(tmp_path / "copy" / "projects") == [worker.project_id]
    assert value(project_folder(tmp_path / "copy")) == b"number 5"
    assert unapplied_files(project_folder(tmp_path / "copy")) == []


def test_a_backup_has_a_project_whose_store_is_not_made_yet(
    worker: Worker, data: Path, tmp_path: Path
) -> None:
    shutil.rmtree(project_folder(data))
    assert backup.back_up(data, tmp_path / "b.tar.gz").projects == 1
    backup.restore(tmp_path / "b.tar.gz", tmp_path / "copy")
    assert len(unapplied_files(project_folder(tmp_path / "copy"))) == 1


def test_a_backup_has_no_batches_that_its_stores_have(
    worker: Worker, data: Path, tmp_path: Path
) -> None:
    store = ProjectStore(project_folder(data), MAP)
    for record in read_segments(find(worker.folder, "0"), refuse_damage):
        store.apply(record.number, record.batch)
    store.close()
    backup.back_up(data, tmp_path / "b.tar.gz")
    backup.restore(tmp_path / "b.tar.gz", tmp_path / "copy")
    assert unapplied_files(project_folder(tmp_path / "copy")) == []


def test_a_segment_that_is_used_again_during_the_copy_is_copied_again(
    worker: Worker, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = 0
    copyfile = shutil.copyfile

    def meanwhile(source: Path, target: Path) -> Any:
        nonlocal copies
        copies += 1
        if copies == 2:
            for number in range(worker.number + 1, worker.number + 40):
                worker.journal.add(worker.project_id, number, bytes(3_000))
                worker.journal.sync()
                worker.journal.release(worker.project_id, number - 1)
        return copyfile(source, target)

    monkeypatch.setattr(shutil, "copyfile", meanwhile)
    journals.copy_journals(data, tmp_path / "copied")
    found = list(read_segments(find(tmp_path / "copied" / "0", "0"), refuse_damage))
    assert found == list(read_segments(find(worker.folder, "0"), refuse_damage))
    assert found[-1].number == worker.number + 39


def test_a_backup_tells_of_a_damaged_journal(worker: Worker, data: Path, tmp_path: Path) -> None:
    worker.spoil(4)
    made = backup.back_up(data, tmp_path / "b.tar.gz")
    assert len(made.damaged) == 1
    assert f"batch 4 of project {worker.project_id}" in made.damaged[0]


def test_verification_counts_the_batches_that_wait(worker: Worker, data: Path) -> None:
    assert verify(data).waiting == 0  # a running worker's journal changes while it is read
    worker.journal.close()
    found = verify_in_child(data)
    assert found.defects == []
    assert found.waiting == worker.batches


def test_verification_names_damage_with_its_events(worker: Worker, data: Path) -> None:
    worker.journal.close()
    worker.spoil(5)
    damage, gap = verify(data).defects
    assert damage.startswith("journal/0: 0.segment: bytes ")
    assert f"batch 5 of project {worker.project_id}; its events: event-4" in damage
    assert gap == (
        f"projects/{worker.project_id}: 1 batches before batch 6 are neither in the store nor in a "
        "journal: 5"
    )


def test_verification_names_what_a_recovery_left(worker: Worker, data: Path) -> None:
    worker.journal.close()
    (worker.folder / "1-2.damaged").touch()
    aside = project_folder(data) / "unapplied-00000000000000000007.journal"
    aside.write_bytes(b"x" * 100)
    defects = "\n".join(verify(data).defects)
    assert "journal/0/1-2.damaged: damage was found" in defects
    assert f"projects/{worker.project_id}/{aside.name}: " in defects


def test_messages_of_batches_beside_a_store_count_as_waiting(
    worker: Worker, data: Path, tmp_path: Path
) -> None:
    batch = Batch(
        0, [], [OutboxEntry("mqtt", "a", b"b", "e", "applet", 1, 1)] * 2, [], [], [], [], []
    )
    worker.journal.add(worker.project_id, worker.number + 1, encode_record(batch))
    worker.journal.sync()
    backup.back_up(data, tmp_path / "b.tar.gz")
    backup.restore(tmp_path / "b.tar.gz", tmp_path / "copy")
    assert backup.waiting_outboxes(tmp_path / "copy") == [{"project": "room", "entries": 2}]
