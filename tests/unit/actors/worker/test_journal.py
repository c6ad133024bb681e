"""A worker that starts again finds everything that was answered before."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from fieldbrook.actors.worker.journal import open_journal
from fieldbrook.core.settings import load
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import store_path
from fieldbrook.storage.registry.service import RegistryWriter
from tests.support.projects import COUNTER
from tests.support.workers import running_worker
from tests.unit.actors.worker.test_runners import event

EVENTS = 7


def test_what_a_killed_worker_has_answered_is_in_the_stores_after_the_next_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "node").mkdir()
    with running_worker(tmp_path / "node") as worker:
        for _ in range(EVENTS):
            worker.send(*((project, [event(COUNTER + b"k")]) for project in worker.projects))
            worker.receive(len(worker.projects))
        # What a kill at this moment would leave.
        left = tmp_path / "left"
        shutil.copytree(worker.folder / "projects", left / "projects")
        shutil.copytree(worker.folder / "journal", left / "journal")
        shutil.copytree(worker.folder / "registry", left / "registry")
        applets = worker.applets

    settings = load(data=left)
    with closing(RegistryWriter(left / "registry", 64 << 20, int, b"k" * 32)) as registry:
        journal, damaged = open_journal(settings, registry.reader(), "0", 1 << 20)
        assert not damaged
        assert not journal.oldest()
        journal.close()
    for project_id, applet_id in applets.items():
        with closing(ProjectStoreReader(store_path(left / "projects", project_id))) as reader:
            count = reader.kv_get(applet_id, b"k") or b""
        assert int.from_bytes(count, "little") == EVENTS
