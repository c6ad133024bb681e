"""Stores of other schemas: refused with both versions in the error, or converted after a copy."""

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
from fieldbrook.storage.chain.store import ChainStore
from fieldbrook.storage.lmdb.ids import to_key
from fieldbrook.storage.lmdb.schema import META, SCHEMA_CELL, VERSION_CELL
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.stores import FORMS, find_stores
from tests.support.next_version import NEXT, add, newer
from tests.unit.storage.backup.data_folder import KEY, MAP, change, project_folder, write
from tests.unit.storage.backup.test_journals import Worker


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data")
    ChainStore(tmp_path / "data" / "chains" / "1", MAP).close()
    return tmp_path / "data"


def mark(path: Path, schema: int, version: str) -> None:
    def edit(txn: Any, meta: Any) -> None:
        txn.put(SCHEMA_CELL, to_key(schema), db=meta)
        txn.put(VERSION_CELL, version.encode(), db=meta)

    change(path, META, edit)


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


def copies(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "rollback").iterdir())


def test_a_folder_of_this_schema_is_left_alone(data: Path) -> None:
    assert upgrade.upgrade(data) is None
    assert not (data / "rollback").exists()


def test_every_store_is_brought_on_once_and_a_copy_stays_as_it_was(
    data: Path, tmp_path: Path
) -> None:
    forms = NEXT._replace(registry=newer(FORMS.registry, 2))
    done = upgrade.upgrade(data, forms)
    assert done is not None
    assert done.stores == 4
    assert added(data / "registry") == b"xx"
    assert added(data / "mqtt") == b"x"
    assert added(data / "chains" / "1") == b"x"
    assert added(project_folder(data)) == b"x"
    assert upgrade.upgrade(data, forms) is None
    assert copies(data) == [done.copy.name]
    backup.restore(done.copy, tmp_path / "back")
    assert verify(tmp_path / "back").defects == []
    store = ProjectStore(project_folder(tmp_path / "back"), MAP)
    assert store.read(KEY) == b"1"
    store.close()
    # This version can read the old store, and refuses the converted one.
    with pytest.raises(StoreError, match=rf"schema 2; fieldbrook {__version__} reads up to 1"):
        ProjectStore(project_folder(data), MAP)


def test_an_upgrade_that_failed_goes_on_under_the_copy_it_made(data: Path, tmp_path: Path) -> None:
    def fail(_environment: lmdb.Environment, _txn: Any) -> None:
        raise lmdb.DiskError("no room")

    broken = NEXT._replace(registry=NEXT.registry._replace(migrations={1: fail}))
    with pytest.raises(StoreError, match="disk is full"):
        upgrade.upgrade(data, broken)
    (name,) = [name for name in copies(data) if name.endswith(".gz")]
    assert upgrade.interrupted(data) == data / "rollback" / name
    done = upgrade.upgrade(data, NEXT)
    assert done is not None
    assert done.stores == 1, "all others were brought on already"
    assert upgrade.interrupted(data) is None
    assert copies(data) == [name]
    backup.restore(done.copy, tmp_path / "back")
    assert upgrade.upgrade(tmp_path / "back") is None, "the copy is of before both"


@pytest.mark.parametrize("where", ["registry", "mqtt", "chains/1", "projects"])
def test_a_newer_store_is_refused_with_both_versions_named(data: Path, where: str) -> None:
    path = project_folder(data) if where == "projects" else data / where
    mark(path, 7, "9.1.0")
    with pytest.raises(StoreError) as refused:
        upgrade.upgrade(data)
    said = str(refused.value)
    assert f"written by fieldbrook 9.1.0 with schema 7; fieldbrook {__version__}" in said
    assert str(path) in said
    assert not (data / "rollback").exists()


def test_a_store_too_old_for_any_migration_is_refused(data: Path) -> None:
    later = newer(FORMS.registry, 2)._replace(migrations={2: add})
    with pytest.raises(StoreError, match=r"with schema 1; .* upgrades from schema 2"):
        upgrade.upgrade(data, FORMS._replace(registry=later))
    assert not (data / "rollback").exists()


def damaged(data: Path, content: bytes) -> Path:
    folder = data / "projects" / "77"
    folder.mkdir()
    (folder / "data.mdb").write_bytes(content)
    return folder


def test_a_damaged_project_keeps_no_other_from_being_brought_on(data: Path, tmp_path: Path) -> None:
    foreign = b"x" * 8192
    folder = damaged(data, foreign)
    done = upgrade.upgrade(data, NEXT)
    assert done is not None
    assert done.stores == 4
    assert (folder / "data.mdb").read_bytes() == foreign
    backup.restore(done.copy, tmp_path / "back")
    assert (tmp_path / "back" / "projects" / "77" / "data.mdb").read_bytes() == foreign


def test_a_truncated_store_does_not_end_the_process_that_looks_at_it(data: Path) -> None:
    whole = (project_folder(data) / "data.mdb").read_bytes()
    folder = damaged(data, whole[:8192])
    (found,) = (store for store in find_stores(data) if store.path == folder)
    assert found.schema == 0
    assert found.problem.endswith("the store is truncated")
    done = upgrade.upgrade(data, NEXT)
    assert done is not None
    assert done.stores == 4


def test_a_registry_that_cannot_be_read_ends_the_upgrade_before_it_begins(data: Path) -> None:
    (data / "registry" / "data.mdb").write_bytes(b"x" * 8192)
    with pytest.raises(StoreError, match="not a store of this node"):
        upgrade.upgrade(data, NEXT)
    assert not (data / "rollback").exists()


def test_batches_that_only_a_journal_has_are_left_to_the_version_that_wrote_them(
    data: Path,
) -> None:
    Worker(data).journal.close()
    with pytest.raises(StoreError, match=f"3 batches .* start fieldbrook {__version__} on"):
        upgrade.upgrade(data, NEXT)
    assert not (data / "rollback").exists()
    # Such batches are no obstacle as long as their stores are not converted.
    assert upgrade.upgrade(data, NEXT._replace(project=FORMS.project)) is not None


def test_what_a_killed_upgrade_left_of_its_copy_is_removed(data: Path) -> None:
    half = data / "rollback" / f"{backup.SCRATCH}x1" / "registry"
    half.mkdir(parents=True)
    (half / "data.mdb").write_bytes(b"half")
    (data / "rollback" / ".before-0.1.0-20260101T000000Z.tar.gz.ab12").write_bytes(b"half")
    done = upgrade.upgrade(data, NEXT)
    assert done is not None
    assert copies(data) == [done.copy.name]


def test_the_folder_of_the_copies_may_be_a_link_to_one_elsewhere(
    data: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "other disk"
    elsewhere.mkdir()
    (data / "rollback").symlink_to(elsewhere)
    done = upgrade.upgrade(data, NEXT)
    assert done is not None
    assert [path.name for path in elsewhere.iterdir()] == [done.copy.name]
    assert (data / "rollback").is_symlink()


def test_a_store_that_never_told_its_schema_has_the_first(data: Path) -> None:
    change(project_folder(data), META, lambda txn, meta: txn.drop(meta))
    assert upgrade.upgrade(data) is None
    store = ProjectStore(project_folder(data), MAP)
    assert store.read(KEY) == b"1"
    store.close()


def test_the_last_two_copies_are_kept(data: Path) -> None:
    for by in range(1, 5):
        forms = FORMS._replace(registry=newer(FORMS.registry, by))
        assert upgrade.upgrade(data, forms) is not None
        for path in (data / "rollback").glob("before-*.tar.gz"):
            path.rename(path.with_name(path.name.replace("before-", f"before-{by}", 1)))
    assert len(copies(data)) == upgrade.COPIES_KEPT
