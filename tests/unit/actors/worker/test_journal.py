"""Restarted workers, and workers that take over, find everything that was answered."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from fieldbrook.actors import messages as m
from fieldbrook.actors.runtime import Address
from fieldbrook.actors.worker.actor import WorkerActor
from fieldbrook.actors.worker.journal import open_journal, recover_other
from fieldbrook.core.errors import JournalBusyError
from fieldbrook.core.model import ADMIN
from fieldbrook.core.settings import Settings, load
from fieldbrook.storage.journal.protocol import Record
from fieldbrook.storage.journal.unapplied import write_unapplied
from fieldbrook.storage.lmdb.codec import encode_record
from fieldbrook.storage.project.commit.batch import Batch
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import ProjectStore, store_path
from fieldbrook.storage.registry.service import RegistryReader, RegistryWriter
from tests.support.nodes import until
from tests.support.projects import COUNTER
from tests.support.workers import running_worker
from tests.unit.actors.worker.test_runners import event

EVENTS = 7
SUPERVISOR = cast(Address, "supervisor")


class Left:
    """The data of a worker that was killed after it had answered some events of two projects."""

    def __init__(self, folder: Path, applets: dict[int, int]) -> None:
        self.settings: Settings = load(data=folder)
        self.applets = applets
        self.writer = RegistryWriter(folder / "registry", 64 << 20, int, b"k" * 32)
        self.reader: RegistryReader = self.writer.reader()

    @property
    def journals(self) -> Path:
        return self.settings.data / "journal"

    def counts(self) -> list[int]:
        """Return the number of events in the store of each project; 0 without a store."""
        counts = []
        for project_id, applet_id in self.applets.items():
            folder = store_path(self.settings.data / "projects", project_id)
            if not (folder / "data.mdb").exists():
                counts.append(0)
                continue
            with closing(ProjectStoreReader(folder)) as reader:
                counts.append(int.from_bytes(reader.kv_get(applet_id, b"k") or b"", "little"))
        return counts


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Left]:
    (tmp_path / "node").mkdir()
    with running_worker(tmp_path / "node") as worker:
        for _ in range(EVENTS):
            worker.send(*((project, [event(COUNTER + b"k")]) for project in worker.projects))
            worker.receive(len(worker.projects))
        folder = tmp_path / "left"
        for name in ("projects", "journal", "registry"):
            shutil.copytree(worker.folder / name, folder / name)
        applets = worker.applets
    found = Left(folder, applets)
    assert max(found.counts()) < EVENTS, "the journal has what the stores lack"
    yield found
    found.writer.close()


def test_what_a_killed_worker_has_answered_is_in_the_stores_after_the_next_start(
    left: Left,
) -> None:
    journal, damaged = open_journal(left.settings, left.reader, "0", segment_bytes=1 << 20)
    assert not damaged
    assert not journal.oldest()
    journal.close()
    assert left.counts() == [EVENTS, EVENTS]


def test_another_worker_takes_what_a_worker_has_answered_that_does_not_start(left: Left) -> None:
    recover_other(left.settings, left.reader, "0", frozenset())
    assert left.counts() == [EVENTS, EVENTS]
    assert list(left.journals.iterdir()) == []
    recover_other(left.settings, left.reader, "0", frozenset())


def test_the_stores_that_a_worker_has_open_are_left_alone(left: Left) -> None:
    here = next(iter(left.applets))
    recover_other(left.settings, left.reader, "0", {here})
    assert left.counts()[0] < EVENTS
    assert left.counts()[1] == EVENTS


def test_the_journal_of_a_running_worker_is_left_alone(left: Left) -> None:
    journal, _ = open_journal(left.settings, left.reader, "0", segment_bytes=1 << 20)
    with pytest.raises(JournalBusyError):
        recover_other(left.settings, left.reader, "0", frozenset())
    journal.close()


def test_a_project_starts_in_the_worker_that_reads_its_journal_when_that_has_been_read(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, sent, posts = WorkerActor(), list[object](), deque[object]()
    run_dir = left.settings.data / "run"
    run_dir.mkdir()
    monkeypatch.setattr(worker, "send", lambda _to, message: sent.append(message))
    monkeypatch.setattr(worker, "accept_posts", lambda: None)
    monkeypatch.setattr(worker, "post", posts.append)
    monkeypatch.setattr("fieldbrook.actors.worker.actor.name_process", lambda _name: None)
    monkeypatch.setattr("fieldbrook.observability.node_log.name", lambda _name: None)
    monkeypatch.setattr("fieldbrook.observability.metrics_table.attach", lambda _slot: None)
    monkeypatch.setattr("fieldbrook.actors.worker.actor.RegistryReader", lambda _path: left.reader)
    project_id = next(iter(left.applets))
    worker.receive(m.Start("worker:1", 1, left.settings, run_dir), SUPERVISOR)
    worker.receive(m.RecoverJournal("0"), SUPERVISOR)
    worker.receive(m.RunProject(project_id, 1), SUPERVISOR)

    def is_sent(message: object) -> bool:
        while posts:
            worker.posted(posts.popleft())
        return message in sent

    until(lambda: is_sent(m.JournalRecovered("0")), "the journal is read")
    until(lambda: is_sent(m.Ready(f"project:{project_id}", 1, 0)), "the project is ready")
    worker.stopping()
    assert left.counts() == [EVENTS, EVENTS]


def test_a_node_that_boots_has_what_waits_beside_its_stores(tmp_path: Path) -> None:
    registry = RegistryWriter(tmp_path / "registry", 64 << 20, int, b"k" * 32)
    account = registry.create_account("ada", "h", ADMIN)
    project_id = registry.create_project(account.account_id, "room").project_id
    (tmp_path / "projects" / "12345").mkdir(parents=True)  # not in the registry
    batch = encode_record(Batch(0, [(b"key", b"value")], [], [], [], [], [], []))
    for folder in (str(project_id), "12345"):
        write_unapplied(tmp_path / "projects" / folder, [Record(int(folder), 1, batch)])
    settings = load(data=tmp_path)
    for is_boot, left in ((False, 2), (True, 1)):
        journal, _ = open_journal(
            settings, registry.reader(), "0", is_boot=is_boot, segment_bytes=1 << 20
        )
        journal.close()
        assert len(list((tmp_path / "projects").glob("*/unapplied-*"))) == left
    registry.close()
    store = ProjectStore(tmp_path / "projects" / str(project_id), 1 << 22)
    assert dict(store.pairs()) == {b"key": b"value"}
    store.close()
