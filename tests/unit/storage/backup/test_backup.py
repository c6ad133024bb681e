"""Backups of a data folder, and restored folders."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from fieldbrook.core.errors import StoreError
from fieldbrook.storage import data_lock
from fieldbrook.storage.backup import backup
from fieldbrook.storage.backup import verify as verify_module
from fieldbrook.storage.backup.verify import verify
from fieldbrook.storage.lmdb.codec import encode_record
from fieldbrook.storage.mqtt import MqttStore
from fieldbrook.storage.project.commit.batch import Batch
from fieldbrook.storage.project.outbox import is_parked, release
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.sql.postgres import namespace as postgres
from tests.unit.storage.backup.data_folder import (
    MAP,
    MESSAGE,
    SESSION,
    SHA256,
    change,
    project_folder,
)


def test_a_restored_folder_has_what_was_backed_up_and_is_parked(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    manifest = backup.restore(made, copy)
    names = {path.name for path in copy.iterdir()}
    stores = {"registry", "projects", "mqtt", "made"}
    assert names == {*stores, "modules", "secrets", "outbox.parked"}
    assert manifest.about == {"projects": 1}
    assert [path.name for path in (copy / "modules").iterdir()] == [f"{SHA256}.wasm"]
    assert (copy / "secrets" / "token.key").stat().st_mode & 0o777 == 0o600
    assert verify(copy).defects == []
    reader = ProjectStoreReader(project_folder(copy))
    assert reader.kv_get(7, b"count") == b"1"
    reader.close()
    assert is_parked(copy)
    assert release(copy)
    assert not is_parked(copy)
    assert not release(copy)


def test_a_store_nobody_told_the_backup_of_is_in_it(made: Path, tmp_path: Path) -> None:
    backup.restore(made, tmp_path / "copy")
    environment = lmdb.open(str(tmp_path / "copy" / "made" / "later"))
    with environment.begin() as txn:
        assert txn.get(b"k") == b"v"
    environment.close()


def test_sessions_queues_and_retained_messages_of_mqtt_are_in_it(
    made: Path, tmp_path: Path
) -> None:
    backup.restore(made, tmp_path / "copy")
    store = MqttStore(tmp_path / "copy" / "mqtt", MAP)
    assert list(store.sessions()) == [SESSION]
    assert store.queue(SESSION.uid, -1, 9) == [(1, None), (2, MESSAGE)]
    assert list(store.retained()) == [("state", MESSAGE)]
    store.close()


def test_what_else_lies_in_a_projects_folder_is_in_it(data: Path, tmp_path: Path) -> None:
    (project_folder(data) / postgres.FILE).write_text("p_7")
    (project_folder(data) / "postgres.new").write_text("half")
    backup.back_up(data, tmp_path / "b.tar.gz")
    backup.restore(tmp_path / "b.tar.gz", tmp_path / "copy")
    assert (project_folder(tmp_path / "copy") / postgres.FILE).read_text() == "p_7"
    assert postgres.FILE == verify_module.POSTGRES
    # Its number is on a server, so it is unknown here whether a staged batch was committed.
    batch = Batch(7, [], [], [], [], [], [], [])
    folder = project_folder(data)
    change(folder, b"stage", lambda txn, t: txn.put(b"stage", encode_record(batch), db=t))
    assert verify(data).defects == []


def test_an_empty_folder_is_filled_and_any_other_left_alone(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "lost+found").mkdir()
    backup.restore(made, copy)
    with pytest.raises(StoreError, match="not empty"):
        backup.restore(made, copy)
    assert verify(copy).defects == []


def test_a_backup_of_a_project_that_is_removed_meanwhile_does_not_have_its_store(
    data: Path, tmp_path: Path
) -> None:
    project_folder(data).rename(data / "projects" / "99")
    made = backup.back_up(data, tmp_path / "b.tar.gz")
    assert made.projects == 0
    assert not [name for name in made.manifest.files if name.startswith("projects/")]


def test_a_module_that_nobody_has_is_told_and_the_rest_is_backed_up(
    data: Path, tmp_path: Path
) -> None:
    (data / "modules" / f"{SHA256}.wasm").unlink()
    made = backup.back_up(data, tmp_path / "b.tar.gz")
    assert made.missing == [SHA256]
    backup.restore(tmp_path / "b.tar.gz", tmp_path / "copy")
    assert verify(tmp_path / "copy").defects == [
        f"modules/{SHA256}.wasm: No such file or directory"
    ]


def test_a_folder_without_a_registry_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not the data folder of a node"):
        backup.back_up(tmp_path, tmp_path / "b.tar.gz")
    assert list(tmp_path.iterdir()) == []


def test_the_node_knows_an_unfinished_restore_by_the_name_the_restore_gives_it() -> None:
    assert data_lock.RESTORING == backup.RESTORING
