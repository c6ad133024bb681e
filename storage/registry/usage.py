"""Usage of quotas by accounts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import msgspec

from fieldbrook.core import quotas
from fieldbrook.core.model import PROJECT_DATABASE
from fieldbrook.storage.lmdb.ids import to_key
from fieldbrook.storage.lmdb.table import OpenTable, text_key
from fieldbrook.storage.registry.tables import RegistryTables

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

StoredBytes = Callable[[int], int]
"""Returns the disk usage of a project in bytes, given its id; 0 when it has no store."""

# For each quota that limits a number of records: the table, and the index that lists them.
_PER_ACCOUNT = {
    quotas.PROJECTS: ("projects", "account_projects"),
    quotas.MODULES: ("resources", "resource_contents"),
    quotas.OPERATORS: ("operators", "account_operators"),
    quotas.ACCESS_KEYS: ("access_keys", "identity_access_keys"),
}
_PER_PROJECT = {
    quotas.APPLETS: ("applets", "project_applets"),
    quotas.STRATEGIES: ("strategies", "project_strategies"),
    quotas.PUBLISHERS: ("publishers", "project_publishers"),
    quotas.MONITORS: ("monitors", "project_monitors"),
    quotas.CRON_JOBS: ("cron_jobs", "project_cron_jobs"),
    quotas.ABIS: ("contract_abis", "project_contract_abis"),
}

_BLOCK = 512  # bytes; the unit of `st_blocks`, whatever the block size of the file system is


def nothing_stored(_project_id: int) -> int:
    """Return 0; it is the `StoredBytes` of a registry without project stores."""
    return 0


def stored_bytes_in(projects: Path) -> StoredBytes:
    """Return a `StoredBytes` that measures the folders of projects.

    A folder holds the key-value store, and the SQL database when it is a SQLite file. Sparse
    files count with their allocated blocks only. Batches that still wait for a checkpoint of the
    store are not counted: these are at most a few MiB from the last few seconds.
    """

    def stored(project_id: int) -> int:
        total = 0
        try:
            with os.scandir(projects / str(project_id)) as found:
                for entry in found:
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
        except FileNotFoundError:  # the project has no folder, or is being removed
            return total
        return total

    return stored


class _Tables(msgspec.Struct):
    tables: list[msgspec.Raw] = []


class _Database(msgspec.Struct):
    schemas: list[_Tables] = []


_decode_database = msgspec.json.Decoder(_Database).decode


def has_tables(database: bytes) -> bool:
    """Return whether a project's PROJECT_DATABASE names any table."""
    return any(schema.tables for schema in _decode_database(database).schemas)


def quota_usage(
    txn: Transaction, tables: RegistryTables, account_id: int, name: str, stored: StoredBytes
) -> int:
    """Return how much of a quota an account uses; see `RegistryQueries.usage`."""
    own = to_key(account_id)
    if name in _PER_ACCOUNT:
        table, index = _PER_ACCOUNT[name]
        return int(getattr(tables, table).count_of(txn, index, own))
    if name == quotas.DEDICATED:
        own_projects = tables.projects.scan(txn, "account_projects", own)
        return sum(project.dedicated for project in own_projects)
    projects = tables.projects.ids(txn, "account_projects", own)
    if name in _PER_PROJECT:
        table, index = _PER_PROJECT[name]
        counted: OpenTable[Any] = getattr(tables, table)
        return sum(counted.count_of(txn, index, to_key(n)) for n in projects)
    if name == quotas.BYTES:
        modules = tables.resources.scan(txn, "resource_contents", own)
        return sum(module.stored_size for module in modules) + sum(map(stored, projects))
    if name == quotas.DATABASES:
        kind = text_key(PROJECT_DATABASE)
        found = (tables.configs.find(txn, "project_configs", to_key(n) + kind) for n in projects)
        return sum(config is not None and has_tables(config.value) for config in found)
    return 0
