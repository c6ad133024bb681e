"""Copies of a data folder, archives that are not whole, and defects that are found."""

from __future__ import annotations

import contextlib
import io
import os
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from fieldbrook.core import clock
from fieldbrook.core.errors import StoreError
from fieldbrook.storage import data_lock
from fieldbrook.storage.backup import archive, backup
from fieldbrook.storage.backup import verify as verify_module
from fieldbrook.storage.backup.verify import verify
from fieldbrook.storage.backup.verify_in_child import verify_in_child
from fieldbrook.storage.lmdb.codec import encode_record
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.batch import Batch
from fieldbrook.storage.project.outbox import is_parked, release
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.registry.service import Module, RegistryWriter
from fieldbrook.storage.sql.postgres import namespace as postgres
from fieldbrook.storage.sql.sqlite import files as sql

MAP = 1 << 24
WASM = b"\0asm\1\0\0\0"
SHA256 = "93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476"
KEY = kv.stored_key(kv.scope(7), b"count")

CUT_SHORT = "the store is truncated or damaged: reading it ended the process with SIGBUS"


def write(data: Path) -> None:
    """A small node's data: an account, a project with an applet, and its store."""
    (data / "secrets").mkdir(parents=True)
    (data / "secrets" / "token.key").write_bytes(bytes(32))
    (data / "secrets" / "token.key").chmod(0o600)
    (data / "run").mkdir()
    (data / "run" / "lock").touch()
    (data / "broker").mkdir()
    (data / "broker" / "nats.log").write_text("x")
    (data / "modules").mkdir()
    (data / "modules" / f"{SHA256}.wasm").write_bytes(WASM)
    (data / "modules" / f"{SHA256}.tag.cwasm").write_bytes(b"compiled")
    writer = RegistryWriter(data / "registry", MAP, clock.now_ms, bytes(32))
    account = writer.create_account("admin", "hash", "ADMIN")
    project = writer.create_project(account.account_id, "room")
    module = Module("a.wasm", SHA256, "0" * 32, len(WASM), ["start"])
    writer.create_applet(
        project.project_id,
        account.account_id,
        "a",
        "a.wasm",
        *(module.filename, module.sha256, module.md5, module.size, module.handlers),
        [("DEFAULT", "start")],
    )
    writer.create_publisher(project.project_id, "d", "d", access_key=True)
    writer.close()
    store = ProjectStore(data / "projects" / str(project.project_id), MAP)
    store.overlay[KEY] = b"1"
    store.commit()
    store.close()
    (data / "made" / "later").mkdir(parents=True)
    later = lmdb.open(str(data / "made" / "later"))
    with later.begin(write=True) as txn:
        txn.put(b"k", b"v")
    later.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def made(data: Path, tmp_path: Path) -> Path:
    backup.back_up(data, tmp_path / "b.tar.gz")
    return tmp_path / "b.tar.gz"


def project_folder(data: Path) -> Path:
    (folder,) = (data / "projects").iterdir()
    return folder


def change(path: Path, table: bytes, edit: Callable[[Any, Any], None]) -> None:
    """Write into a store behind the node's back."""
    environment = lmdb.open(str(path), max_dbs=128, map_size=MAP)
    with environment.begin(write=True) as txn:
        edit(txn, environment.open_db(table, txn=txn))
    environment.close()


def test_a_restored_folder_has_what_was_backed_up_and_is_parked(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    manifest = backup.restore(made, copy)
    names = {path.name for path in copy.iterdir()}
    assert names == {"registry", "projects", "modules", "secrets", "made", "outbox.parked"}
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
    assert defects(data) == ""


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


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 0.7, 0.99, 0.9999])
def test_an_archive_that_is_cut_short_restores_nothing(
    made: Path, tmp_path: Path, share: float
) -> None:
    whole = made.read_bytes()
    made.write_bytes(whole[: int(len(whole) * share)])
    before = set(tmp_path.iterdir())
    with pytest.raises(StoreError, match="not an archive"):
        backup.restore(made, tmp_path / "copy")
    assert set(tmp_path.iterdir()) == before


def test_an_archive_with_a_flipped_bit_restores_nothing(made: Path, tmp_path: Path) -> None:
    whole = made.read_bytes()
    # The last 8 bytes are the compressor's own sum, which the manifest makes unnecessary.
    for place in range(20, len(whole) - 8, len(whole) // 23):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        made.write_bytes(damaged)
        copy = tmp_path / f"copy{place}"
        try:
            backup.restore(made, copy)
        except StoreError:
            assert not copy.exists()
        else:  # a bit that means nothing, such as a padding's
            assert verify(copy).defects == []


@pytest.mark.parametrize(
    "content",
    [b"no JSON", b'{"made_by": "0.1\xe6"}', b'{"format": \xe6}', b'{"a": ' + b"[" * 99_999, b"{}"],
)
def test_a_manifest_that_is_none_is_a_damaged_archive(tmp_path: Path, content: bytes) -> None:
    damaged = tmp_path / "d.tar.gz"
    with tarfile.open(damaged, "w:gz") as tar:
        manifest = tarfile.TarInfo(archive.MANIFEST)
        manifest.size = len(content)
        tar.addfile(manifest, io.BytesIO(content))
    with pytest.raises(StoreError, match="truncated or damaged"):
        backup.restore(damaged, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_something_else_is_told_from_a_backup(made: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "f.tar.gz"
    with tarfile.open(foreign, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("hello"), io.BytesIO())
    with pytest.raises(StoreError, match="not an archive of fieldbrook"):
        backup.restore(foreign, tmp_path / "copy")
    foreign.unlink()
    folder = tmp_path / "f"
    folder.mkdir()
    archive.pack(folder, foreign, "project", {})
    with pytest.raises(StoreError, match="holds an exported project, not a backup"):
        backup.restore(foreign, tmp_path / "copy")
    with pytest.raises(StoreError, match="No such file"):
        backup.restore(tmp_path / "absent", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/../../out"])
def test_an_archive_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    manifest = (
        b'{"kind":"backup","format":1,"made_by":"x","made_at":"x","files":{"%s":'
        b'{"size":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}}'
    ) % name.encode()
    foreign = tmp_path / "f.tar.gz"
    with tarfile.open(foreign, "w:gz") as tar:
        first = tarfile.TarInfo("manifest.json")
        first.size = len(manifest)
        tar.addfile(first, io.BytesIO(manifest))
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(StoreError, match="not a valid name of a file"):
        backup.restore(foreign, tmp_path / "d" / "copy")
    assert not list(tmp_path.rglob("out"))


def test_an_archive_of_a_newer_format_names_both(tmp_path: Path) -> None:
    manifest = b'{"kind":"backup","format":2,"made_by":"fieldbrook 9.0","contents":[]}'
    foreign = tmp_path / "f.tar.gz"
    with tarfile.open(foreign, "w:gz") as tar:
        first = tarfile.TarInfo("manifest.json")
        first.size = len(manifest)
        tar.addfile(first, io.BytesIO(manifest))
    with pytest.raises(StoreError, match=r"format 2 .* fieldbrook 9\.0; .* up to format 1"):
        backup.restore(foreign, tmp_path / "copy")


def test_the_node_knows_an_unfinished_restore_by_the_name_the_restore_gives_it() -> None:
    assert data_lock.RESTORING == backup.RESTORING


# ---------------------------------------------------------------- two stores


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
    monkeypatch.setattr(backup, "_TRIES", 0)
    with writing(source) as writer:
        while not sql.is_initialized(source / "sql.db"):
            assert writer.poll() is None
        for number in range(10):
            copy = tmp_path / f"c{number}"
            assert backup.copy_project(source, copy)
            _agreed(copy)
        assert writer.poll() is None


# ---------------------------------------------------------------- defects


def defects(data: Path) -> str:
    return "\n".join(verify(data).defects)


def test_a_folder_that_is_well_has_no_defects(data: Path) -> None:
    found = verify(data)
    assert found.defects == []
    assert found.projects == 1
    assert found.records > 5


def test_a_record_that_cannot_be_read_is_named(data: Path) -> None:
    def spoil(txn: Any, table: Any) -> None:
        key = next(iter(txn.cursor(db=table)))[0]
        txn.put(key, b"\1\xc1", db=table)

    change(data / "registry", b"publishers", spoil)
    said = defects(data)
    assert "publishers" in said
    assert "Publisher record cannot be read" in said
    assert "access_keys" in said  # its publisher is gone for it


def test_a_reference_to_nothing_is_named(data: Path) -> None:
    change(data / "registry", b"resources", lambda txn, table: txn.drop(table, delete=False))
    said = defects(data)
    assert "is not an id of the resources" in said
    assert "index resource_contents and the records differ in 1" in said


def test_a_module_with_another_content_is_named(data: Path) -> None:
    (data / "modules" / f"{SHA256}.wasm").write_bytes(b"x")
    assert defects(data) == f"modules/{SHA256}.wasm: its content has another SHA-256 than its name"


def test_a_damaged_store_is_named_and_the_others_are_looked_at(data: Path) -> None:
    (data / "registry" / "data.mdb").write_bytes(b"x" * 8192)
    (data / "modules" / "x").touch()
    found = verify(data)
    assert found.defects[0].startswith("registry: ")
    assert found.projects == 1


def test_a_store_that_is_cut_short_is_a_defect_and_the_others_are_looked_at(data: Path) -> None:
    place = f"projects/{project_folder(data).name}"
    cut(project_folder(data))
    found = verify_in_child(data)
    assert found.defects == [f"{place}: {CUT_SHORT}"]
    assert found.records > 0
    cut(data / "registry")
    found = verify_in_child(data)
    assert found.defects[:2] == [f"registry: {CUT_SHORT}", f"{place}: {CUT_SHORT}"]


def test_verify_looks_at_all_of_a_folder_without_defects(data: Path) -> None:
    assert verify_in_child(data) == verify(data)


def test_files_and_folders_in_the_place_of_stores_are_defects(tmp_path: Path) -> None:
    (tmp_path / "registry").write_text("a file")
    (tmp_path / "projects" / "7").mkdir(parents=True)
    (tmp_path / "projects" / "7" / "data.mdb").mkdir()
    assert [line.partition(":")[0] for line in verify_in_child(tmp_path).defects] == [
        "registry",
        "secrets/token.key",
        "projects/7",
    ]


def cut(store: Path) -> None:
    """Take all pages of a store but the two that say where the others are."""
    os.truncate(store / "data.mdb", 2 * os.sysconf("SC_PAGESIZE"))


def test_a_row_that_cannot_be_read_is_named(data: Path) -> None:
    folder = project_folder(data)
    change(folder, b"history", lambda txn, table: txn.put(bytes(8), b"\xc1", db=table))
    assert f"projects/{folder.name}: history" in defects(data)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    "place",
    ["modules/{sha}.wasm", "projects/{project}/sql.db", "projects/{project}/lock.mdb",
     "secrets/operator.key", "registry/lock.mdb"],
)  # fmt: skip
def test_a_pipe_or_a_device_in_the_place_of_a_file_is_named_and_not_waited_for(
    place: str, kind: str, data: Path
) -> None:
    name = place.format(sha=SHA256, project=project_folder(data).name)
    path = data / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    assert f"{name}: it is not a regular file" in defects(data)


def test_a_damaged_database_is_named(data: Path) -> None:
    path = project_folder(data) / "sql.db"
    path.write_bytes(b"no database" * 100)
    assert "file is not a database" in defects(data)


def test_a_batch_that_belongs_to_no_state_of_the_database_is_named(data: Path) -> None:
    batch = Batch(7, [], [], [], [], [], [], [])
    folder = project_folder(data)
    change(folder, b"stage", lambda txn, t: txn.put(b"stage", encode_record(batch), db=t))
    assert "batch 7 is staged, but SQL has committed 0" in defects(data)
    batch = Batch(1, [], [], [], [], [], [], [])
    change(folder, b"stage", lambda txn, t: txn.put(b"stage", encode_record(batch), db=t))
    assert defects(data) == ""


def test_a_store_of_no_project_and_a_readable_secret_are_named(data: Path) -> None:
    project_folder(data).rename(data / "projects" / "99")
    (data / "secrets" / "token.key").chmod(0o644)
    said = defects(data)
    assert "projects/99: the registry has no such project" in said
    assert "secrets/token.key: other users can read it" in said
