"""Disk usage: how much space the stores, modules and journals of a node take.

Like in gateways, stores are read while a node may be running. The size of a table is that of its
pages; `free` is the size of the pages that LMDB has freed and keeps.
"""

from __future__ import annotations

import faulthandler
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import lmdb

from fieldbrook.core.errors import SettingsError, StoreError
from fieldbrook.storage.backup.backup import CHAINS, PROJECTS, REGISTRY, require_data
from fieldbrook.storage.journal.recovery import JOURNALS
from fieldbrook.storage.lmdb.environment import DATA, open_environment, store_errors
from fieldbrook.storage.lmdb.rows import table_bytes
from fieldbrook.storage.mqtt.store import FOLDER as MQTT
from fieldbrook.storage.project import dead_letters, deduplication, kv, outbox
from fieldbrook.storage.project.history import tables as history
from fieldbrook.storage.project.history.traces import TRACES
from fieldbrook.storage.project.refused import FOLDER as REFUSED
from fieldbrook.storage.project.rows import LOGS, METRICS
from fieldbrook.storage.registry.service import RegistryReader
from fieldbrook.storage.upgrade import ROLLBACK

AUDIT = b"audit"
OTHER, SQL, FREE = "other", "sql", "free"
MODULES, UPLOADS = "modules", "uploads"
_TABLES = {
    "pairs": (kv.DATABASE,),
    "history": (history.DATABASE, history.FAILURES),
    "payloads": (history.PAYLOADS,),
    "traces": (TRACES,),
    "logs": (LOGS,),
    "metrics": (METRICS,),
    "deadLetters": (dead_letters.DATABASE,),
    "results": (deduplication.OUTCOMES, deduplication.ORDER, deduplication.DELIVERIES),
    "outbox": (outbox.DATABASE, outbox.DELIVERED),
}
_BLOCK = 512  # the unit of `st_blocks`
_TABLES_OF_A_STORE = 128


@dataclass(frozen=True, slots=True)
class ProjectUsage:
    """The disk space of one project, in bytes by kind. `name` is empty if the
    registry has none.

    `parts` has all kinds. The parts of a store that does not exist yet are 0. If the store cannot
    be read, `problem` has the reason, and all its bytes count as free.
    """

    project_id: int
    name: str
    parts: Mapping[str, int]
    problem: str = ""

    @property
    def bytes(self) -> int:
        """The sum of all parts."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Usage:
    """The disk space of a data folder.

    Attributes:
        folders: bytes of each folder except the folder of projects.
        audit: bytes of the audit log, which is a part of the registry.
        projects: the projects, the largest first.
        free_disk: bytes that the file system has left.
    """

    folders: Mapping[str, int]
    audit: int
    projects: list[ProjectUsage] = field(default_factory=list)
    free_disk: int = 0

    @property
    def parts(self) -> Mapping[str, int]:
        """Bytes of all projects together, by kind."""
        found: Counter[str] = Counter()
        for project in self.projects:
            found.update(project.parts)
        return found

    @property
    def bytes(self) -> int:
        """Bytes of everything."""
        return sum(self.folders.values()) + sum(project.bytes for project in self.projects)


def measure(data: Path) -> Usage:
    """Measure a data folder; a node may be running on it.

    Raises:
        StoreError: the folder is not the data folder of a node.
        SettingsError: the folder belongs to another user, whose node could not open a lock file
            made by this user.
        OSError: the folder cannot be read.
    """
    require_data(data)
    owner = (data / REGISTRY).stat().st_uid
    if owner != os.geteuid():
        raise SettingsError(reason=f"{data} belongs to user {owner}: run this as the node's user")
    names = _names(data)
    audit = _sizes(data / REGISTRY, {"audit": (AUDIT,)}).get("audit", 0)
    folders = {
        # `rollback` may be a link to another disk. `Path.resolve` raises for links in a circle.
        name: disk_bytes(Path(os.path.realpath(data / name)))
        for name in (REGISTRY, JOURNALS, MODULES, CHAINS, MQTT, REFUSED, UPLOADS, ROLLBACK)
    }
    projects = [
        _project(path, names.get(int(path.name), ""))
        for path in (data / PROJECTS).iterdir()
        if path.name.isdecimal()
    ]
    projects.sort(key=lambda project: project.bytes, reverse=True)
    place = os.statvfs(data)
    return Usage(folders, audit, projects, place.f_bavail * place.f_frsize)


def disk_bytes(path: Path) -> int:
    """Return the bytes on the disk that a file, or all files below a folder, use."""
    total = 0
    try:
        if path.is_dir() and not path.is_symlink():
            for each in path.iterdir():
                total += disk_bytes(each)
        else:
            total += path.lstat().st_blocks * _BLOCK
    except FileNotFoundError:  # removed meanwhile
        return total
    return total


def _names(data: Path) -> dict[int, str]:
    reader = RegistryReader(data / REGISTRY)
    try:
        return {project.project_id: project.name for project in reader.projects()}
    finally:
        reader.close()


def _project(path: Path, name: str) -> ProjectUsage:
    store = disk_bytes(path / DATA)
    sql = sum(disk_bytes(each) for each in path.glob("sql.db*"))
    rest = disk_bytes(path) - store - sql
    tables = dict.fromkeys(_TABLES, 0)
    problem = ""
    try:
        tables |= _sizes(path, _TABLES) if store else {}
    except StoreError as error:
        problem = str(error)
    free = max(0, store - sum(tables.values()))
    parts = {**tables, SQL: sql, OTHER: rest, FREE: free}
    return ProjectUsage(int(path.name), name, parts, problem)


def _sizes(path: Path, kinds: Mapping[str, tuple[bytes, ...]]) -> dict[str, int]:
    """Return the size of the tables of a store, by kind; they are read in a child.

    A page beyond the end of a damaged file ends its reader with SIGBUS. No environment may be open
    in this process, because it forks.

    Raises:
        StoreError: the store cannot be read.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        faulthandler.disable()  # the signal is expected
        code = 1
        try:
            os.close(reading)
            try:
                found: dict[str, int] | str = _read_sizes(path, kinds)
            except StoreError as error:
                found = str(error)
            with os.fdopen(writing, "w") as file:
                json.dump(found, file)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as file:
        answer = file.read()
    if os.waitpid(pid, 0)[1] or not answer:
        raise StoreError(reason=f"{path}: the store is truncated")
    told: dict[str, int] | str = json.loads(answer)
    if isinstance(told, str):
        raise StoreError(reason=told)
    return told


def _read_sizes(path: Path, kinds: Mapping[str, tuple[bytes, ...]]) -> dict[str, int]:
    environment = open_environment(path, map_size=0, readonly=True, max_dbs=_TABLES_OF_A_STORE)
    try:
        with store_errors(path):
            return {
                kind: sum(_table_bytes(environment, table) for table in tables)
                for kind, tables in kinds.items()
            }
    finally:
        environment.close()


def _table_bytes(environment: lmdb.Environment, table: bytes) -> int:
    try:
        database = environment.open_db(table, create=False)
    except lmdb.NotFoundError:
        return 0
    with environment.begin() as txn:
        return table_bytes(txn, database)
