"""The writer of the registry: opening, limits, what survives a restart."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from fieldbrook.core.errors import StorageFullError, StoreError
from fieldbrook.core.model import ADMIN, DEVELOPER, DISABLED
from fieldbrook.storage.lmdb.environment import open_environment
from fieldbrook.storage.lmdb.ids import to_key
from fieldbrook.storage.lmdb.schema import SCHEMA_CELL
from fieldbrook.storage.registry.service import RegistryReader, RegistryWriter
from fieldbrook.storage.registry.tables import SCHEMA
from tests.unit.storage.registry.harness import KEY, MAP, Registry


def test_ids_survive_a_clock_that_goes_back_over_a_restart(registry: Registry) -> None:
    before = registry.account("one").account_id
    registry.now_ms -= 365 * 86_400_000
    registry.reopen()
    assert registry.account("two").account_id > before


def test_the_change_counter_survives_a_restart(registry: Registry) -> None:
    registry.project()
    version = registry.reader.version()
    registry.reopen()
    assert registry.reader.version() == version == 2


def test_a_store_of_something_else_is_no_registry(tmp_path: Path) -> None:
    with (
        open_environment(tmp_path / "store", map_size=MAP) as other,
        other.begin(write=True) as txn,
    ):
        txn.put(b"theirs", b"value")
    with pytest.raises(StoreError, match="not a registry"):
        RegistryWriter(tmp_path / "store", MAP, lambda: 0, KEY)
    with pytest.raises(StoreError, match="not a registry"):
        RegistryReader(tmp_path / "store")


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "registry"
    RegistryWriter(path, MAP, lambda: 0, KEY).close()
    with lmdb.open(str(path), max_dbs=32) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True) as txn:
            txn.put(SCHEMA_CELL, to_key(SCHEMA + 1), db=meta)
    with pytest.raises(StoreError, match=f"schema {SCHEMA + 1}.*up to {SCHEMA}"):
        RegistryWriter(path, MAP, lambda: 0, KEY)
    with pytest.raises(StoreError, match="newer version"):
        RegistryReader(path)


def test_a_full_registry_refuses_the_command_and_answers_on(tmp_path: Path) -> None:
    writer = RegistryWriter(tmp_path / "registry", 1 << 20, lambda: 1, KEY)
    reader = writer.reader()
    account = writer.create_account("ada", "h", ADMIN)
    with pytest.raises(StoreError, match="size limit"):
        for number in range(1_000):
            project = writer.create_project(
                account.account_id, f"p{number}", description="d" * 4_000
            )
    version = reader.version()
    assert version == len(reader.projects()) + 1
    writer.remove_project(project.project_id)
    assert reader.version() == version + 1
    writer.close()


def test_a_registry_that_accounts_have_filled_lets_everything_be_removed(tmp_path: Path) -> None:
    writer = RegistryWriter(tmp_path / "registry", 4 << 20, lambda: 1, KEY)
    writer.create_account("root", "h", ADMIN)
    account = writer.create_account("ada", "h", DEVELOPER)
    project = writer.create_project(account.account_id, "room")
    for size in (100_000, 10_000, 1_000, 1):
        with pytest.raises(StorageFullError, match="the registry has reached its size limit"):
            for number in range(10_000):
                name = f"{size}-{number}"
                writer.create_publisher(project.project_id, name, name, event_types=["x" * size])
    with pytest.raises(StorageFullError):
        writer.put_config(project.project_id, "PROJECT_ENV", b"x" * 10_000)
    writer.end_logins(account.account_id)
    assert writer.set_account_state(account.account_id, DISABLED).state == DISABLED
    writer.remove_project(project.project_id)
    writer.remove_account(account.account_id)
    writer.create_project(writer.create_account("bob", "h", DEVELOPER).account_id, "room")
    writer.close()
