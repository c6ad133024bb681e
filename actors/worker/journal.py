"""Opens the journals of workers, after writing their batches into stores that lack them."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

from fieldbrook.core.errors import JournalBusyError, JournalDamagedError
from fieldbrook.core.settings import Settings
from fieldbrook.storage.journal.file import SEGMENT_BYTES, FileJournal
from fieldbrook.storage.journal.recovery import (
    JOURNALS,
    Stores,
    apply_all_unapplied,
    open_recovered,
    recover_abandoned,
)
from fieldbrook.storage.lmdb.environment import store_errors
from fieldbrook.storage.project.history.tables import HistoryLimits
from fieldbrook.storage.project.store import ProjectStore, store_path
from fieldbrook.storage.project.stored import stored_number
from fieldbrook.storage.registry.service import RegistryReader
from fieldbrook.storage.sql.access import database_access

_FIRST = "0"


def open_journal(
    settings: Settings,
    reader: RegistryReader,
    name: str,
    *,
    is_boot: bool = False,
    segment_bytes: int = SEGMENT_BYTES,
) -> tuple[FileJournal, list[JournalDamagedError]]:
    """Open and recover the journal of the worker `name`.

    The first worker also recovers the journals of workers that do not exist any more, such as
    those of single projects before a restart of the node. When the node boots, no project runs.
    Then the first worker also opens all stores that have unapplied batches, for example after a
    restore, so that they apply them.

    Returns:
        The journal, and what is damaged in the journals.

    Raises:
        StoreError: a journal cannot be read or written, or is used by another process.
    """
    stores = _stores(settings, reader)
    journals = settings.data / JOURNALS
    journal, done = open_recovered(journals / name, stores, segment_bytes)
    damaged = done.damaged
    if name == _FIRST:
        used = [str(number) for number in range(settings.worker_processes)]
        try:
            for abandoned in recover_abandoned(journals, used, stores).values():
                damaged += abandoned.damaged
            if is_boot:
                apply_all_unapplied(stores)
        except BaseException:
            journal.close()
            raise
    return journal, damaged


def recover_other(
    settings: Settings, reader: RegistryReader, name: str, here: Collection[int]
) -> None:
    """Recover and remove the journal of another worker, which must not run.

    Args:
        settings: the settings of the node.
        reader: the registry.
        name: the other worker.
        here: the projects whose stores this process has open. The journal has nothing for them,
            because a project leaves a worker only when its store is complete.

    Raises:
        JournalBusyError: the other worker runs.
        StoreError: see `recover`.
    """
    stores = _stores(settings, reader, here)
    journals = settings.data / JOURNALS
    with store_errors(journals):
        names = {path.name for path in journals.iterdir()}
    # Thespian may report a death before the process has ended.
    if name in names and not recover_abandoned(journals, names - {name}, stores, wait=True):
        raise JournalBusyError(reason=f"{journals / name}: worker {name} uses it")


def _stores(
    settings: Settings, reader: RegistryReader, here: Collection[int] = frozenset()
) -> Stores:
    projects = settings.data / "projects"

    def is_wanted(project_id: int) -> bool:
        return project_id not in here and reader.project(project_id) is not None

    return Stores(
        projects,
        is_wanted,
        lambda project_id: stored_number(store_path(projects, project_id)),
        partial(open_store, settings, projects),
    )


def open_store(settings: Settings, projects: Path, project_id: int) -> ProjectStore:
    """Open the store of a project, without a journal.

    Raises:
        StoreError: it cannot be opened.
    """
    folder = store_path(projects, project_id)
    return ProjectStore(
        folder,
        settings.project_map_bytes,
        database_access(settings, folder, project_id).committed,
        HistoryLimits.of(settings),
    )
