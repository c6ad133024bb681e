"""After a crash, batches that are only in the journal are written to the stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fieldbrook.core.errors import JournalDamagedError, NodeError, StoreError
from fieldbrook.storage.journal import recovery
from fieldbrook.storage.journal.file import FileJournal
from fieldbrook.storage.journal.memory import MemoryJournal
from fieldbrook.storage.journal.protocol import Journal, refuse_damage
from fieldbrook.storage.journal.recovery import (
    Stores,
    open_recovered,
    recover,
    recover_abandoned,
)
from fieldbrook.storage.journal.segments import find, read_segments
from fieldbrook.storage.journal.unapplied import unapplied_files
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.project.stored import stored_number

MAP = 1 << 22
PROJECTS = (1, 2, 3)


class Node:
    """Stores of projects, and the written data of their batches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "projects"
        self.mark = folder / "mark"
        self.written: dict[int, dict[bytes, bytes]] = {n: {} for n in PROJECTS}
        self.opened: list[int] = []
        self.refused: dict[int, NodeError] = {}
        self.existing = set(PROJECTS)
        self.stores = Stores(
            self.folder,
            self.existing.__contains__,
            lambda project_id: stored_number(self.folder / str(project_id)),
            self._open,
        )

    def _open(self, project_id: int) -> ProjectStore:
        self.opened.append(project_id)
        if project_id in self.refused:
            raise self.refused[project_id]
        return ProjectStore(self.folder / str(project_id), MAP)

    def work(self, journal: Journal, random: Random, rounds: int = 12) -> None:
        """Commit batches of all projects, with some checkpoints, up to a crash."""
        stores = {
            n: ProjectStore(self.folder / str(n), MAP, journal=journal, project_id=n)
            for n in PROJECTS
        }
        for turn in range(rounds):
            for project_id in random.sample(PROJECTS, 2):
                key, value = b"%d" % random.randrange(5), b"%d" % turn
                stores[project_id].overlay[key] = value
                stores[project_id].commit()
                self.written[project_id][key] = value
            if random.random() < 0.2:
                stores[random.choice(PROJECTS)].checkpoint()
        for store in stores.values():
            store._stored.close()

    def stored(self) -> dict[int, dict[bytes, bytes]]:
        found = {}
        for project_id in PROJECTS:
            store = ProjectStore(self.folder / str(project_id), MAP)
            found[project_id] = dict(store.pairs())
            store.close()
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def journal() -> MemoryJournal:
    made = MemoryJournal()
    made.begin()
    return made


@pytest.mark.parametrize("seed", range(8))
def test_every_batch_is_in_its_store_after_a_recovery_however_often_that_is_cut_off(
    seed: int, node: Node, journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(recovery, "_PART_BYTES", random.choice((1, 300, 1 << 20)))
    node.work(journal, random)
    journal.crash()
    for cut in range(2):
        node.stores = node.stores._replace(open=cut_off_at(cut, node.stores.open))
        with pytest.raises(KeyboardInterrupt):
            recover(journal, node.stores, node.mark)
        node.mark.unlink(missing_ok=True)  # killed from outside: no project is the cause
        node.stores = node.stores._replace(open=node._open)
    done = recover(journal, node.stores, node.mark)
    assert not done.unapplied
    assert node.stored() == node.written
    assert not node.mark.exists()
    node.work(journal, random)
    journal.crash()
    recover(journal, node.stores, node.mark)
    assert node.stored() == node.written


def cut_off_at(
    count: int, function: Callable[[int], recovery.Opened]
) -> Callable[[int], recovery.Opened]:
    calls = iter(range(count))

    def counted(project_id: int) -> recovery.Opened:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return function(project_id)

    return counted


def test_a_store_that_lacks_nothing_is_not_opened(node: Node, journal: MemoryJournal) -> None:
    node.work(journal, Random(1))
    journal.crash()
    records = list(journal.records())
    recover(journal, node.stores, node.mark)
    node.opened.clear()
    for record in records:
        journal.add(*record)
    journal.sync()
    journal.crash()
    assert recover(journal, node.stores, node.mark).batches == 0
    assert node.opened == []


def test_batches_of_a_removed_project_are_dropped(node: Node, journal: MemoryJournal) -> None:
    journal.add(2, 1, b"of a project that is gone")
    journal.sync()
    journal.crash()
    node.existing.remove(2)
    assert not recover(journal, node.stores, node.mark).unapplied
    assert not (node.folder / "2").exists()


def test_a_store_that_cannot_be_opened_gets_its_batches_later(
    node: Node, journal: MemoryJournal, caplog: pytest.LogCaptureFixture
) -> None:
    node.work(journal, Random(2))
    journal.crash()
    node.refused[2] = StoreError(reason="no permission")
    done = recover(journal, node.stores, node.mark)
    assert done.unapplied == node.refused
    assert "project 2: batches stay unapplied: no permission" in caplog.text
    journal.crash()
    assert list(journal.records()) == []
    assert len(unapplied_files(node.folder / "2")) == 1
    assert node.stored() == node.written
    assert unapplied_files(node.folder / "2") == []


def test_a_store_that_ends_the_process_is_left_alone_by_the_next_recovery(
    node: Node, journal: MemoryJournal, caplog: pytest.LogCaptureFixture
) -> None:
    node.work(journal, Random(3))
    journal.crash()
    node.mark.write_text("3")
    done = recover(journal, node.stores, node.mark)
    assert list(done.unapplied) == [3]
    assert 3 not in node.opened
    assert "process died while it read this store" in caplog.text
    assert not node.mark.exists()
    assert node.stored() == node.written


def test_the_journal_stays_as_it_is_when_batches_cannot_be_put_anywhere(
    node: Node, journal: MemoryJournal
) -> None:
    node.work(journal, Random(4))
    journal.crash()
    records = list(journal.records())
    node.refused[1] = StoreError(reason="the disk is full")
    (node.folder.parent / "file").touch()
    stores = node.stores._replace(folder=node.folder.parent / "file")
    with pytest.raises(StoreError, match="unapplied-"):
        recover(journal, stores, node.mark)
    assert list(journal.records()) == records
    node.refused.clear()
    node.mark.unlink()
    recover(journal, node.stores, node.mark)
    assert node.stored() == node.written


def test_damage_costs_a_project_what_follows_it_and_others_nothing(
    node: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journals = tmp_path / "journal"
    journal = FileJournal(journals / "0", 1 << 16)
    journal.begin()
    stores = {
        n: ProjectStore(node.folder / str(n), MAP, journal=journal, project_id=n) for n in PROJECTS
    }
    for number in range(1, 5):
        for project_id, store in stores.items():
            store.overlay[b"batch"] = b"%d of %d" % (number, project_id)
            store.commit()
    for store in stores.values():
        store._stored.close()
    journal.close()
    found = find(journals / "0", "0")
    (lost,) = (r for r in read_segments(found, refuse_damage) if r[:2] == (2, 3))
    path = max(found, key=lambda one: one.segment).path
    path.write_bytes(path.read_bytes().replace(lost.batch, lost.batch[:-1] + b"?"))

    opened, done = open_recovered(journals / "0", node.stores)
    opened.close()
    (damage,) = done.damaged
    assert (damage.details["project"], damage.details["number"]) == (2, 3)
    assert list(done.unapplied) == [2]
    assert "continues with batch 4" in str(done.unapplied[2])
    assert len(list((journals / "0").glob("*.damaged"))) == 1
    for project_id in (1, 3):
        store = ProjectStore(node.folder / str(project_id), MAP)
        assert dict(store.pairs()) == {b"batch": b"4 of %d" % project_id}
        store.close()
    assert stored_number(node.folder / "2") == 2
    with pytest.raises(JournalDamagedError, match="continues with batch 4"):
        ProjectStore(node.folder / "2", MAP)
    for aside in unapplied_files(node.folder / "2"):
        aside.unlink()
    store = ProjectStore(node.folder / "2", MAP)
    assert dict(store.pairs()) == {b"batch": b"2 of 2"}
    store.close()
    assert "batch 3 of project 2" in caplog.text


def test_journals_of_workers_that_are_gone_are_recovered_and_removed(
    node: Node, tmp_path: Path
) -> None:
    journals = tmp_path / "journal"
    random = Random(5)
    for name, project_ids in {"p7": (1,), "p8": (2,), "1": (3,), "0": ()}.items():
        journal = FileJournal(journals / name, 1 << 16)
        journal.begin()
        for project_id in project_ids:
            path = node.folder / str(project_id)
            store = ProjectStore(path, MAP, journal=journal, project_id=project_id)
            value = b"%d" % random.randrange(9)
            store.overlay[b"key"] = node.written[project_id][b"key"] = value
            store.commit()
            store._stored.close()
        if name != "p8":
            journal.close()
        else:
            running = journal
    found = recover_abandoned(journals, ["0"], node.stores)
    assert {name: done.batches for name, done in found.items()} == {"1": 1, "p7": 1}
    assert sorted(path.name for path in journals.iterdir()) == ["0", "p8"]
    running.close()
    assert recover_abandoned(journals, ["0"], node.stores)["p8"].batches == 1
    assert [path.name for path in journals.iterdir()] == ["0"]
    assert node.stored() == node.written


def test_a_journal_that_was_closed_with_everything_in_the_stores_is_empty(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "0", 1 << 16)
    journal.begin()
    for number in range(1, 40):
        journal.add(1, number, bytes(3_000))
        journal.sync()
    journal.release(1, 39)
    journal.close()
    journal = FileJournal(tmp_path / "0", 1 << 16)
    assert list(journal.records()) == []
    journal.close()
