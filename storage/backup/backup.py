"""A consistent copy of a node's data folder, taken while the node runs, and the way back.

Each store is copied as of one moment, but not all as of the same. The order makes them fit:
the projects first, the registry after them, and last the files it names. So the copy of the
registry knows every project whose store is in it, stores lack nothing that was acknowledged
before the backup began, and a module that was replaced meanwhile is not missed.

Left out is what belongs to a running node (`run`, `uploads`), what it makes again (compiled
modules), earlier copies (`rollback`), and the broker's folder: its files change under a copy,
and old messages that come back would be events of now.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import lmdb

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.backup.archive import Manifest, pack, refuse_existing, unpack
from fieldbrook.storage.chain.store import copy_monitors
from fieldbrook.storage.lmdb.environment import open_environment, store_errors
from fieldbrook.storage.project.outbox import MARKER, park, waiting_entries, waiting_projects
from fieldbrook.storage.project.refused import FOLDER as REFUSED
from fieldbrook.storage.registry.reader import RegistryReader
from fieldbrook.storage.registry.tables import RegistryTables
from fieldbrook.storage.sql import sqlite as sql
from fieldbrook.system.fsync import (
    is_of_this_boot,
    make_folder,
    mark_of_this_boot,
    sync_folder,
    sync_folders_below,
)

KIND = "backup"
RESTORING = ".restoring"  # in a data folder into which a restore did not finish
REGISTRY, PROJECTS, MODULES = "registry", "projects", "modules"
CHAINS, _EARLIER = "chains", ".chains"
_STORE = "data.mdb"
_LEFT_OUT = frozenset({"run", "uploads", "broker", "rollback", REGISTRY, PROJECTS, MODULES})
_PASSING = (".new-", ".", "outbox.waiting", "lock.mdb")
_OF_THE_STORES = (_STORE, sql.FILE, *_PASSING)
_TRIES = 1_000
_REGISTRY_TRIES = 5
_LOCK_WAIT_S = 10.0
_TABLES_ROOM = 16 << 20


class BackedUp(NamedTuple):
    """What a backup holds. `missing`: modules that the registry names and nobody has."""

    manifest: Manifest
    projects: int
    missing: list[str]


def back_up(data: Path, target: Path) -> BackedUp:
    """Make an archive of a data folder, whether or not a node runs on it.

    The stores are copied beside `target` first: for a while the disk holds them there too.

    Args:
        target: the file to make, 0600; there must be none.

    Raises:
        StoreError: there is no node's data, a store cannot be read, or `target` is there
            already or cannot be written. Nothing is left behind.
    """
    require_data(data)
    refuse_existing(target)
    if target.resolve().is_relative_to(data.resolve()):
        raise StoreError(reason=f"{target} lies in the data folder, where it would be lost with it")
    with _scratch(target) as folder:
        projects, missing = copy_data(data, folder)
        return BackedUp(pack(folder, target, KIND, {"projects": projects}), projects, missing)


def back_up_at_rest(data: Path, target: Path) -> None:
    """As `back_up` of a folder on which nobody runs, whatever version it is of: nothing in it
    is looked into.

    Raises:
        StoreError: as `back_up`.
    """
    require_data(data)
    with _scratch(target) as folder:
        try:
            stored = _copy_projects(data / PROJECTS, folder / PROJECTS)
            _copy_others(data, folder)
            copy_store(data / REGISTRY, folder / REGISTRY)
            (folder / MODULES).mkdir(mode=0o700)
            for path in (data / MODULES).glob("*.wasm"):
                shutil.copyfile(path, folder / MODULES / path.name)
        except OSError as error:
            raise StoreError(reason=f"{error.filename or data}: {error.strerror}") from error
        pack(folder, target, KIND, {"projects": len(stored)})


def require_data(data: Path) -> None:
    """Refuse a folder that is not the data folder of a node.

    Raises:
        StoreError: it has no registry.
    """
    if not (data / REGISTRY / _STORE).is_file():
        raise StoreError(reason=f"{data} is not the data folder of a node: it has no registry")


def copy_data(data: Path, folder: Path) -> tuple[int, list[str]]:
    """Copy what a backup holds into an empty folder.

    Returns:
        How many projects' stores are in it, and the modules that are missing.

    Raises:
        StoreError: a store cannot be read, or the copy not be written.
    """
    try:
        earlier = folder / _EARLIER
        if (data / CHAINS).is_dir():
            _copy_tree(data / CHAINS, earlier)
        stored = _copy_projects(data / PROJECTS, folder / PROJECTS)
        _copy_others(data, folder)
        _put_monitors_back(folder / CHAINS, earlier)
        missing = _copy_registry(data, folder, stored)
    except OSError as error:
        raise StoreError(reason=f"{error.filename or data}: {error.strerror}") from error
    return len(stored), missing


def restore(archive: Path, data: Path) -> Manifest:
    """Make a data folder from an archive; what its handlers sent is parked in it.

    Args:
        data: a folder that is empty or not there.

    Raises:
        StoreError: the folder has something in it, or the archive is not whole or not one.
            The folder is then as it was.
    """
    try:
        if data.exists() and (not data.is_dir() or any(_own(data))):
            raise StoreError(reason=f"{data} is not empty; nothing is written over")
        made = not data.exists()
        make_folder(data)
        unfinished = data / RESTORING
        unfinished.mkdir(mode=0o700)
        try:
            if any(path != unfinished for path in _own(data)):  # a node that starts there now
                raise StoreError(reason=f"{data} is in use; nothing is written over")
            manifest = unpack(archive, unfinished, KIND)
            require_data(unfinished)
            park(unfinished)
            if (unfinished / REFUSED).is_dir():
                mark_of_this_boot(unfinished / REFUSED)  # what was unpacked is synced
            _move_up(unfinished)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            if made:
                shutil.rmtree(data, ignore_errors=True)
            raise
    except OSError as error:
        raise StoreError(reason=f"{error.filename or data}: {error.strerror}") from error
    return manifest


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """The data folder in an archive, for as long as the block lasts, in the folder for
    temporary files.

    Raises:
        StoreError: the archive is not whole or not one.
    """
    with tempfile.TemporaryDirectory(prefix="fieldbrook-") as folder:
        unpack(archive, Path(folder), KIND)
        yield Path(folder)


def _own(data: Path) -> Iterator[Path]:
    return (path for path in data.iterdir() if path.name != "lost+found")


def _move_up(unfinished: Path) -> None:
    """The registry last: a folder without one is not a node's data."""
    sync_folders_below(unfinished)
    for path in sorted(unfinished.iterdir(), key=lambda path: path.name == REGISTRY):
        path.replace(unfinished.parent / path.name)
    unfinished.rmdir()
    sync_folder(unfinished.parent)


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    try:
        folder = Path(tempfile.mkdtemp(prefix=".fieldbrook-backup-", dir=target.parent))
    except OSError as error:
        raise StoreError(reason=f"{target.parent}: {error.strerror}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- stores


def _copy_projects(source: Path, target: Path) -> set[int]:
    """The ids of the projects whose stores were copied."""
    stored = set()
    for path in sorted(source.iterdir()) if source.is_dir() else ():
        if path.name.isdecimal() and copy_project(path, target / path.name):
            stored.add(int(path.name))
    return stored


def copy_project(source: Path, target: Path) -> bool:
    """Copy a project's store and its SQL database, as of one moment between two batches.

    With SQL's number the same before and after the store's snapshot began, both fit: a stage
    in the snapshot is that number's, to be applied, or the next one's, to be dropped.

    Returns:
        False when the project has no store (any more, or not yet).

    Raises:
        StoreError: one of the two cannot be read.
    """
    if not _has_store(source):
        return False
    try:
        environment = open_environment(source, map_size=0, readonly=True)
        try:
            copy_open_project(environment, source, target)
        finally:
            environment.close()
        return True
    except StoreError:
        if _has_store(source):
            raise
        shutil.rmtree(target, ignore_errors=True)
        return False  # the project was removed while it was copied


def copy_open_project(environment: lmdb.Environment, source: Path, target: Path) -> None:
    """As `copy_project`, for a process that has the store open: LMDB opens none twice."""
    database = source / sql.FILE
    target.mkdir(mode=0o700, parents=True)
    if not any(_copy_both(environment, database, target) for _ in range(_TRIES)):
        # So many commits that no snapshot fell between two: hold them up for a moment.
        with sql.without_commits(database, _LOCK_WAIT_S):
            _copy_both(environment, database, target)
    # Such as the name of its schema on a PostgreSQL server.
    for path in source.iterdir():
        if path.is_file() and not path.name.startswith(_OF_THE_STORES):
            shutil.copyfile(path, target / path.name)
    if waiting_entries(target):
        (target / MARKER).touch()
    (target / "lock.mdb").unlink(missing_ok=True)


def _copy_both(environment: lmdb.Environment, database: Path, target: Path) -> bool:
    before = sql.committed_number(database) if sql.is_made(database) else 0
    with store_errors(environment.path()), environment.begin() as txn:
        if not sql.is_made(database):
            environment.copy(str(target), compact=True, txn=txn)
            return True
        with sql.snapshot(database) as taken:
            if taken.number != before:
                return False
            environment.copy(str(target), compact=True, txn=txn)
            taken.copy(target / sql.FILE)
    return True


def _copy_registry(data: Path, folder: Path, stored: set[int]) -> list[str]:
    """Copy the registry and the modules it names; drop stores of projects it does not know.

    A module may go between the two, with the last applet that named it: the registry is then
    copied again. Returns the modules that are missing nevertheless.
    """
    missing: list[str] = []
    for _ in range(_REGISTRY_TRIES):
        shutil.rmtree(folder / REGISTRY, ignore_errors=True)
        copy_store(data / REGISTRY, folder / REGISTRY)
        with opened_copy(folder / REGISTRY) as reader:
            known = {project.project_id for project in reader.projects()}
            modules = sorted({resource.sha256 for resource in reader.resources()})
        missing = [name for name in modules if not _copy_module(data, folder, name)]
        if not missing:
            break
    (folder / REGISTRY / "lock.mdb").unlink(missing_ok=True)
    for project_id in stored - known:
        shutil.rmtree(folder / PROJECTS / str(project_id))
    stored &= known
    for path in (folder / MODULES).glob("*"):
        if path.stem not in modules:
            path.unlink()
    return missing


@contextmanager
def opened_copy(folder: Path) -> Iterator[RegistryReader]:
    """A copy of a registry of this schema; tables it is too old for are added to it."""
    room = (folder / _STORE).stat().st_size + _TABLES_ROOM
    environment = open_environment(folder, map_size=room)
    try:
        yield RegistryReader.sharing(environment, RegistryTables(environment, create=True))
    finally:
        environment.close()


def _copy_module(data: Path, folder: Path, sha256: str) -> bool:
    name = f"{sha256}.wasm"
    if (folder / MODULES / name).exists():
        return True
    (folder / MODULES).mkdir(mode=0o700, exist_ok=True)
    try:
        shutil.copyfile(data / MODULES / name, folder / MODULES / name)
    except FileNotFoundError:
        return False
    return True


def _copy_others(data: Path, folder: Path) -> None:
    for path in sorted(data.iterdir()):
        if path.name in _LEFT_OUT or (path.name == REFUSED and not is_of_this_boot(path)):
            continue
        _copy_tree(path, folder / path.name)


def _put_monitors_back(chains: Path, earlier: Path) -> None:
    """Have monitors where they were before the projects were copied."""
    for path in sorted(chains.iterdir()) if chains.is_dir() else ():
        if _has_store(path):
            copy_monitors(earlier / path.name, path)
    shutil.rmtree(earlier, ignore_errors=True)


def _copy_tree(source: Path, target: Path) -> None:
    """Copy what the node has beside its own stores: LMDB as LMDB, files as they are."""
    if source.name.startswith(_PASSING) or source.is_symlink():
        return
    if source.is_file():
        shutil.copyfile(source, target)
    elif _has_store(source):
        copy_store(source, target)
    elif source.is_dir():
        target.mkdir(mode=0o700)
        for path in sorted(source.iterdir()):
            _copy_tree(path, target / path.name)


def copy_store(source: Path, target: Path) -> None:
    """Copy an LMDB folder as of one moment, whoever writes to it.

    Raises:
        StoreError: it cannot be read or written.
    """
    target.mkdir(mode=0o700, parents=True)
    environment = open_environment(source, map_size=0, readonly=True)
    try:
        with store_errors(source), environment.begin() as txn:
            environment.copy(str(target), compact=True, txn=txn)
    finally:
        environment.close()


def _has_store(folder: Path) -> bool:
    try:
        return (folder / _STORE).stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False


def waiting(data: Path) -> list[dict[str, str | int]]:
    """The projects whose handlers sent what is undelivered: `project` (its name) and
    `entries`."""
    reader = RegistryReader(data / REGISTRY)
    try:
        names = {project.project_id: project.name for project in reader.projects()}
    finally:
        reader.close()
    rows: list[dict[str, str | int]] = []
    for project_id in waiting_projects(data / PROJECTS):
        count = waiting_entries(data / PROJECTS / str(project_id))
        rows.append({"project": names.get(project_id, str(project_id)), "entries": count})
    return rows
