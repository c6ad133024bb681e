"""Backups of a data folder, and copies of two stores as of one moment."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
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
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.commit.batch import Batch
from fieldbrook.storage.project.outbox import is_parked, release
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.sql.postgres import namespace as postgres
from fieldbrook.storage.sql.sqlite import files as sql
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
    # Its number is on a server: a staged batch cannot be judged from here.
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


def test_a_project_that_is_removed_right_after_its_store_was_read_is_left_out(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_both = backup._copy_both

    def remove_afterwards(environment: lmdb.Environment, database: Path, target: Path) -> bool:
        copied = copy_both(environment, database, target)
        shutil.rmtree(database.parent)
        return copied

    monkeypatch.setattr(backup, "_copy_both", remove_afterwards)
    assert not backup.copy_project(project_folder(data), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


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


_BATCHES = """
import sys
from pathlib import Path
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase

folder = Path(sys.argv[1])
column = {"name": "f_n", "constrains": {"datatype": "INT64"}}
tables = [{"name": "t_n", "cols": [column]}]
database = SqliteDatabase(folder / "sql.db", {"schemas": [{"schema": "public", "tables": tables}]})
store = ProjectStore(folder, 1 << 24, database.number)
key = kv.stored_key(kv.scope(7), b"count")
number = 0
print("ready", flush=True)
while True:
    number += 1
    database.begin_event()
    request = b'{"statement":"INSERT INTO t_n (f_n) VALUES (?)","params":[{"int64":%d}]}' % number
    database.execute(request)
    database.keep_event()
    store.overlay[key] = str(number).encode()
    store.commit(database)
"""


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that commits to both stores of a project without a pause."""
    command = [sys.executable, "-c", _BATCHES, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline()
            yield writer
        finally:
            writer.kill()


def test_a_copy_of_both_stores_of_a_project_is_always_of_one_moment(tmp_path: Path) -> None:
    source = tmp_path / "p"
    with writing(source):
        seen = []
        for number in range(60):
            copy = tmp_path / f"c{number}"
            assert backup.copy_project(source, copy)
            seen.append(_agreed(copy))
    assert seen == sorted(seen)
    assert seen[-1] > seen[0], "the writer wrote nothing meanwhile"


def _agreed(copy: Path) -> int:
    """What both stores say when the copy is opened as the node opens it."""
    store = ProjectStore(copy, MAP)
    value = int(store.read(kv.stored_key(kv.scope(7), b"count")) or b"0")
    store.close()
    if not (copy / "sql.db").exists():
        assert value == 0
        return 0
    connection = sqlite3.connect(copy / "sql.db")
    try:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        rows = connection.execute("SELECT count(*), max(f_n) FROM t_n") if "t_n" in tables else None
        count, newest = rows.fetchone() if rows else (0, None)
    finally:
        connection.close()
    assert count == (newest or 0) == value
    return value


def test_a_project_that_commits_without_a_pause_is_held_up_for_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "p"
    monkeypatch.setattr(backup, "_ATTEMPTS", 0)
    with writing(source) as writer:
        while not sql.is_initialized(source / "sql.db"):
            assert writer.poll() is None
        for number in range(10):
            copy = tmp_path / f"c{number}"
            assert backup.copy_project(source, copy)
            _agreed(copy)
        assert writer.poll() is None
