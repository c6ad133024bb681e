"""Backup and restore: a consistent copy of a node's data folder, taken while the node runs.

Each store is copied as of one moment, but different stores as of different moments. The order of
copying keeps them consistent: projects first, then the registry, then the modules that the registry
names. Therefore the copied registry contains every project whose store is in the copy. The stores
contain everything that was acknowledged before the backup began. A module that was replaced during
the backup is not missing.

A store may lack batches that only the journal of a worker has. Therefore the journals are copied
before the stores, and the batches that a copied store lacks are saved in files beside it
(`journals.py`).

A backup leaves out the files of a running node (`run`, `uploads`), files that the node makes
again (compiled modules) and earlier copies (`rollback`). It also leaves out the folder `broker`,
which has the files of an external broker beside the node, or of the broker of an earlier version.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.backup.archive import Manifest, pack, refuse_existing, unpack
from fieldbrook.storage.backup.copies import (
    STORE,
    copy_files,
    copy_project,
    copy_store,
    copy_tree,
    has_store,
)
from fieldbrook.storage.backup.journals import add_batches, copy_journals, entries_only_in_journals
from fieldbrook.storage.chain.store import replace_monitor_tables
from fieldbrook.storage.journal.recovery import JOURNALS
from fieldbrook.storage.lmdb.environment import open_environment
from fieldbrook.storage.project.outbox import park, waiting_entries, waiting_projects
from fieldbrook.storage.project.refused import FOLDER as REFUSED
from fieldbrook.storage.registry.reader import RegistryReader
from fieldbrook.storage.registry.tables import RegistryTables
from fieldbrook.system.fsync import (
    is_of_this_boot,
    make_folder,
    mark_of_this_boot,
    sync_folder,
    sync_folders_below,
)

KIND = "backup"
SCRATCH = ".fieldbrook-backup-"  # prefix of the temporary folder beside a backup
RESTORING = ".restoring"  # folder in a data folder until a restore has finished
REGISTRY, PROJECTS, MODULES = "registry", "projects", "modules"
CHAINS, _EARLIER = "chains", ".chains"
_JOURNALS = ".journals"
_EXCLUDED = frozenset(
    {"run", "uploads", "broker", "rollback", JOURNALS, REGISTRY, PROJECTS, MODULES}
)
_REGISTRY_ATTEMPTS = 5
_TABLES_ROOM = 16 << 20


class BackupResult(NamedTuple):
    """The result of a backup.

    `missing` has the modules that the registry names, but whose files do not exist. `damaged`
    describes damage in the journals: batches that only a damaged journal had are missing in the
    backup.
    """

    manifest: Manifest
    projects: int
    missing: list[str]
    damaged: list[str]


def back_up(data: Path, target: Path) -> BackupResult:
    """Make an archive of a data folder, whether or not a node runs on it.

    The stores are first copied to a folder beside `target`, which needs space for them.

    Args:
        target: the file to create, with mode 0600; it must not exist.

    Raises:
        StoreError: `data` is not a node's data folder, a store cannot be read, or `target`
            exists, lies in `data` or cannot be written. Nothing is left behind.
    """
    require_data(data)
    refuse_existing(target)
    if target.resolve().is_relative_to(data.resolve()):
        raise StoreError(reason=f"{target} is inside the data folder; choose a place outside of it")
    with _scratch(target) as folder:
        projects, missing, damaged = copy_data(data, folder)
        manifest = pack(folder, target, KIND, {"projects": projects})
        return BackupResult(manifest, projects, missing, damaged)


def back_up_stopped(data: Path, target: Path, unreadable: Collection[Path] = ()) -> None:
    """Back up a data folder of any version on which no node runs.

    Unlike `back_up` it does not read the records of the registry.

    Args:
        data: the data folder.
        target: as for `back_up`, but it may lie in the data folder's `rollback`.
        unreadable: folders of damaged stores. Their files are copied as they are.

    Raises:
        StoreError: as `back_up`.
    """
    require_data(data)
    with _scratch(target) as folder:
        try:
            stored, _ = _copy_projects(data, folder, unreadable)
            _copy_others(data, folder, unreadable)
            copy_store(data / REGISTRY, folder / REGISTRY)
            (folder / MODULES).mkdir(mode=0o700)
            for path in (data / MODULES).glob("*.wasm"):
                if path.is_file():
                    shutil.copyfile(path, folder / MODULES / path.name)
        except OSError as error:
            raise StoreError(reason=f"{error.filename or data}: {error.strerror}") from error
        pack(folder, target, KIND, {"projects": len(stored)})


def require_data(data: Path) -> None:
    """Refuse a folder that is not the data folder of a node.

    Raises:
        StoreError: the folder has no registry.
    """
    if not (data / REGISTRY / STORE).is_file():
        raise StoreError(reason=f"{data} is not the data folder of a node: it has no registry")


def copy_data(data: Path, folder: Path) -> tuple[int, list[str], list[str]]:
    """Copy the content of a backup into an empty folder.

    Returns:
        The number of copied project stores, the missing modules, and the damage in the journals.

    Raises:
        StoreError: a store cannot be read, or the copy cannot be written.
    """
    try:
        earlier = folder / _EARLIER
        if (data / CHAINS).is_dir():
            copy_tree(data / CHAINS, earlier)
        stored, damaged = _copy_projects(data, folder)
        _copy_others(data, folder)
        _replace_monitors(folder / CHAINS, earlier)
        missing = _copy_registry(data, folder, stored)
    except OSError as error:
        raise StoreError(reason=f"{error.filename or data}: {error.strerror}") from error
    return len(stored), missing, damaged


def restore(archive: Path, data: Path) -> Manifest:
    """Make a data folder from an archive; its outboxes are parked.

    Args:
        data: an empty folder, or one that does not exist.

    Raises:
        StoreError: the folder is not empty, or the archive is incomplete, damaged or not a
            backup. The folder is then unchanged.
    """
    try:
        if data.exists() and (not data.is_dir() or any(_own_files(data))):
            raise StoreError(reason=f"{data} is not empty; restore into a new or empty folder")
        made = not data.exists()
        make_folder(data)
        unfinished = data / RESTORING
        unfinished.mkdir(mode=0o700)
        try:
            if any(path != unfinished for path in _own_files(data)):  # a node was started there
                raise StoreError(reason=f"{data} is in use by a node")
            manifest = unpack(archive, unfinished, KIND)
            require_data(unfinished)
            park(unfinished)
            if (unfinished / REFUSED).is_dir():
                mark_of_this_boot(unfinished / REFUSED)  # unpacked files are synced
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
    """Unpack the data folder of a backup into a temporary folder, which is removed at the end of
    the block.

    Raises:
        StoreError: the archive is incomplete, damaged or not a backup.
    """
    with tempfile.TemporaryDirectory(prefix="fieldbrook-") as folder:
        unpack(archive, Path(folder), KIND)
        yield Path(folder)


def _own_files(data: Path) -> Iterator[Path]:
    return (path for path in data.iterdir() if path.name != "lost+found")


def _move_up(unfinished: Path) -> None:
    """Move the restored files into the data folder.

    The registry comes last: a folder without a registry does not count as a node's data.
    """
    sync_folders_below(unfinished)
    for path in sorted(unfinished.iterdir(), key=lambda path: path.name == REGISTRY):
        path.replace(unfinished.parent / path.name)
    unfinished.rmdir()
    sync_folder(unfinished.parent)


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    try:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=target.parent))
    except OSError as error:
        raise StoreError(reason=f"{target.parent}: {error.strerror}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- stores


def _copy_projects(
    data: Path, folder: Path, unreadable: Collection[Path] = ()
) -> tuple[set[int], list[str]]:
    """Copy all project stores, and the batches that only the journals have.

    Returns:
        The ids of the projects, and the damage in the journals.
    """
    source, target = data / PROJECTS, folder / PROJECTS
    copy_journals(data, folder / _JOURNALS)
    stored, damaged_stores = set(), set()
    for path in sorted(source.iterdir()) if source.is_dir() else ():
        if path in unreadable:
            copy_files(path, target / path.name)
            damaged_stores.add(int(path.name))
        elif path.name.isdecimal() and copy_project(path, target / path.name):
            stored.add(int(path.name))
    added, damaged = add_batches(folder / _JOURNALS, target, damaged_stores)
    stored |= damaged_stores
    return stored | added, damaged


def _copy_registry(data: Path, folder: Path, stored: set[int]) -> list[str]:
    """Copy the registry and its modules, and drop copied stores of projects that it does not
    contain.

    A module may be deleted between the copy of the registry and its own, together with the last
    applet that used it. Then the registry is copied again, at most `_REGISTRY_ATTEMPTS` times in
    total.

    Returns:
        The modules that are still missing.
    """
    missing: list[str] = []
    for _ in range(_REGISTRY_ATTEMPTS):
        shutil.rmtree(folder / REGISTRY, ignore_errors=True)
        copy_store(data / REGISTRY, folder / REGISTRY)
        with open_registry_copy(folder / REGISTRY) as reader:
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
def open_registry_copy(folder: Path) -> Iterator[RegistryReader]:
    """Open a copy of a registry of this schema; missing newer tables are added to the copy."""
    room = (folder / STORE).stat().st_size + _TABLES_ROOM
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
    if not (data / MODULES / name).is_file():  # a copy of a device may have no end
        return False
    try:
        shutil.copyfile(data / MODULES / name, folder / MODULES / name)
    except FileNotFoundError:
        return False
    return True


def _copy_others(data: Path, folder: Path, unreadable: Collection[Path] = ()) -> None:
    for path in sorted(data.iterdir()):
        if path.name in _EXCLUDED or (path.name == REFUSED and not is_of_this_boot(path)):
            continue
        copy_tree(path, folder / path.name, unreadable)


def _replace_monitors(chains: Path, earlier: Path) -> None:
    """Replace the tables of monitors by the copies from before the projects were copied."""
    for path in sorted(chains.iterdir()) if chains.is_dir() else ():
        if has_store(path):
            replace_monitor_tables(earlier / path.name, path)
    shutil.rmtree(earlier, ignore_errors=True)


def waiting_outboxes(data: Path) -> list[dict[str, str | int]]:
    """List the projects with undelivered outbox entries: `project` (its name) and `entries`."""
    reader = RegistryReader(data / REGISTRY)
    try:
        names = {project.project_id: project.name for project in reader.projects()}
    finally:
        reader.close()
    rows: list[dict[str, str | int]] = []
    unwritten = entries_only_in_journals(data)
    for project_id in waiting_projects(data / PROJECTS):
        folder = data / PROJECTS / str(project_id)
        count = waiting_entries(folder) + unwritten.get(project_id, 0)
        rows.append({"project": names.get(project_id, str(project_id)), "entries": count})
    return rows
