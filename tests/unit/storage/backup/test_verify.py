"""Verification: every defect of a data folder is reported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.storage.backup.verify import verify
from fieldbrook.storage.backup.verify_in_child import verify_in_child
from fieldbrook.storage.lmdb.codec import encode_record
from fieldbrook.storage.mqtt.records import encode_message, encode_session
from fieldbrook.storage.project.commit.batch import Batch
from tests.unit.storage.backup.data_folder import (
    MESSAGE,
    SESSION,
    SHA256,
    change,
    project_folder,
)

CUT_SHORT = "the store is truncated or damaged: reading it ended the process with SIGBUS"


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
    assert "access_keys" in said  # the publisher with this key is lost


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
    cut(data / "mqtt")
    assert f"mqtt: {CUT_SHORT}" in verify_in_child(data).defects


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
    """Cut off all pages of a store except the two meta pages."""
    os.truncate(store / "data.mdb", 2 * os.sysconf("SC_PAGESIZE"))


@pytest.mark.parametrize(
    ("table", "key", "value", "what"),
    [
        (b"sessions", b"tk", b"\1\xc1", "SessionRecord record cannot be read"),
        (b"sessions", b"tother", encode_session(SESSION), "the session has another key"),
        (b"queue", b"short", b"", "not the key of a row of a queue"),
        (b"queue", bytes(16), b"\1\x90", "MessageRecord record cannot be read"),
        (b"retained", b"tother", encode_message("t", MESSAGE), "the message has another topic"),
    ],
)
def test_a_damaged_row_of_the_mqtt_listeners_store_is_named(
    table: bytes, key: bytes, value: bytes, what: str, data: Path
) -> None:
    before = verify(data).records
    change(data / "mqtt", table, lambda txn, opened: txn.put(key, value, db=opened))
    found = verify(data)
    assert len(found.defects) == 1
    assert found.defects[0].startswith(f"mqtt: {table.decode()}: {key.hex()}: ")
    assert what in found.defects[0]
    assert found.records == before + 1


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
