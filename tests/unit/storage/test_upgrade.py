"""Stores of other schemas: refused with both versions named, or brought on after a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdb
import pytest

from fieldbrook import __version__
from fieldbrook.core.errors import StoreError
from fieldbrook.storage import upgrade
from fieldbrook.storage.backup import backup
from fieldbrook.storage.backup.verify import verify
from fieldbrook.storage.lmdb.ids import to_key
from fieldbrook.storage.lmdb.schema import META, SCHEMA_CELL, VERSION_CELL
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.upgrade import MQTT, PROJECT, REGISTRY, Form
from tests.unit.storage.backup.data_folder import KEY, MAP, change, project_folder, write


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data")
    return tmp_path / "data"


def mark(path: Path, schema: int, version: str) -> None:
    def edit(txn: Any, meta: Any) -> None:
        txn.put(SCHEMA_CELL, to_key(schema), db=meta)
        txn.put(VERSION_CELL, version.encode(), db=meta)

    change(path, META, edit)


def add(environment: lmdb.Environment, txn: Any) -> None:
    """Counts how often it was called, in a table of its own."""
    table = environment.open_db(b"added", txn=txn)
    txn.put(b"n", txn.get(b"n", b"", db=table) + b"x", db=table)


def added(path: Path) -> bytes | None:
    environment = lmdb.open(str(path), max_dbs=128, map_size=MAP)
    try:
        with environment.begin() as txn:
            value: bytes | None = txn.get(b"n", db=environment.open_db(b"added", txn=txn))
            return value
    except lmdb.ReadonlyError:
        return None
    finally:
        environment.close()


def newer(form: Form, by: int = 1) -> Form:
    migrations = {form.schema + n: add for n in range(by)}
    return form._replace(schema=form.schema + by, migrations=migrations)


def copies(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "rollback").iterdir())


def test_a_folder_of_this_schema_is_left_alone(data: Path) -> None:
    assert upgrade.upgrade(data) is None
    assert not (data / "rollback").exists()


def test_every_store_is_brought_on_once_and_a_copy_stays_as_it_was(
    data: Path, tmp_path: Path
) -> None:
    forms = newer(REGISTRY, 2), newer(PROJECT), newer(MQTT)
    done = upgrade.upgrade(data, *forms)
    assert done is not None
    assert done.stores == 3
    assert added(data / "registry") == b"xx"
    assert added(data / "mqtt") == b"x"
    assert added(project_folder(data)) == b"x"
    assert upgrade.upgrade(data, *forms) is None
    assert copies(data) == [done.copy.name]
    backup.restore(done.copy, tmp_path / "back")
    assert verify(tmp_path / "back").defects == []
    store = ProjectStore(project_folder(tmp_path / "back"), MAP)
    assert store.read(KEY) == b"1"
    store.close()
    # This version reads what it was, and refuses what it is now.
    with pytest.raises(StoreError, match=rf"schema 2; fieldbrook {__version__} reads up to 1"):
        ProjectStore(project_folder(data), MAP)


def test_an_upgrade_that_failed_goes_on_under_the_copy_it_made(data: Path, tmp_path: Path) -> None:
    def fail(_environment: lmdb.Environment, _txn: Any) -> None:
        raise lmdb.DiskError("no room")

    broken = newer(REGISTRY)._replace(migrations={1: fail})
    with pytest.raises(StoreError, match="disk is full"):
        upgrade.upgrade(data, broken, newer(PROJECT))
    (name,) = [name for name in copies(data) if name.endswith(".gz")]
    done = upgrade.upgrade(data, newer(REGISTRY), newer(PROJECT))
    assert done is not None
    assert done.stores == 1, "the project was brought on already"
    assert copies(data) == [name]
    backup.restore(done.copy, tmp_path / "back")
    assert upgrade.upgrade(tmp_path / "back") is None, "the copy is of before both"


@pytest.mark.parametrize("where", ["registry", "project"])
def test_a_newer_store_is_refused_with_both_versions_named(data: Path, where: str) -> None:
    path = data / "registry" if where == "registry" else project_folder(data)
    mark(path, 7, "9.1.0")
    with pytest.raises(StoreError) as refused:
        upgrade.upgrade(data)
    said = str(refused.value)
    assert f"written by fieldbrook 9.1.0 with schema 7; fieldbrook {__version__}" in said
    assert str(path) in said
    assert not (data / "rollback").exists()


def test_a_store_too_old_for_any_migration_is_refused(data: Path) -> None:
    with pytest.raises(StoreError, match=r"with schema 1; .* brings it to 3"):
        upgrade.upgrade(data, newer(REGISTRY, 2)._replace(migrations={2: add}), PROJECT)


def test_a_damaged_project_keeps_no_other_from_being_brought_on(data: Path) -> None:
    damaged = data / "projects" / "77"
    damaged.mkdir()
    (damaged / "data.mdb").write_bytes(b"x" * 8192)
    assert upgrade.upgrade(data) is None


def test_a_store_that_never_told_its_schema_has_the_first(data: Path) -> None:
    change(project_folder(data), META, lambda txn, meta: txn.drop(meta))
    assert upgrade.upgrade(data) is None
    store = ProjectStore(project_folder(data), MAP)
    assert store.read(KEY) == b"1"
    store.close()


def test_the_last_two_copies_are_kept(data: Path) -> None:
    for by in range(1, 5):
        form = newer(REGISTRY, by)
        assert upgrade.upgrade(data, form, PROJECT) is not None
        for path in (data / "rollback").glob("before-*.tar.gz"):
            path.rename(path.with_name(path.name.replace("before-", f"before-{by}", 1)))
    assert len(copies(data)) == upgrade.COPIES_KEPT
