"""Recovery: writes batches of a journal into the stores that lack them.

It opens one store after the other, and only stores that lack batches: another worker may already
run a project whose older batches are still in this journal.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from fieldbrook.core.errors import JournalBusyError, JournalDamagedError, NodeError, StoreError
from fieldbrook.observability import fault_points
from fieldbrook.storage.journal.file import SEGMENT_BYTES, FileJournal
from fieldbrook.storage.journal.protocol import Journal, Record
from fieldbrook.storage.journal.unapplied import (
    Applying,
    apply_records,
    unapplied_files,
    write_unapplied,
)
from fieldbrook.storage.lmdb.environment import store_errors

log = logging.getLogger(__name__)

JOURNALS = "journal"  # folder in a data folder, with a folder for each worker
_PART_BYTES = 32 << 20  # how many bytes of batches are in memory at a time
_MARK = "recovering"


class Opened(Applying, Protocol):
    """An open store."""

    def close(self) -> None: ...


class Stores(NamedTuple):
    """The stores of a node.

    Attributes:
        folder: the folder with a folder for each project.
        exists: whether the registry has the project. Batches of removed projects are dropped.
        number: returns the number of the last batch in a store, 0 without a store. It must not
            write, because another worker may run the project.
        open: opens a project's store without a journal.
    """

    folder: Path
    exists: Callable[[int], bool]
    number: Callable[[int], int]
    open: Callable[[int], Opened]


class Recovered(NamedTuple):
    """The result of a recovery.

    Attributes:
        batches: how many batches were written into stores.
        unapplied: by project id, why its batches could not be written. The batches are kept in the
            project's folder, see `unapplied.py`.
        damaged: the damaged places of the journal. Its files are kept as `*.damaged`.
    """

    batches: int
    unapplied: dict[int, NodeError]
    damaged: list[JournalDamagedError]


def recover(journal: Journal, stores: Stores, mark: Path) -> Recovered:
    """Bring all stores up to date, and empty the journal.

    Args:
        journal: the journal, before its `begin`.
        stores: the stores.
        mark: a file that contains the id of the project whose store is open. Reading a damaged
            store may end the process; then the next recovery finds the file and does not open this
            store.

    Raises:
        StoreError: the journal cannot be read or written; or neither a store nor the files of
            unapplied batches in its folder can be written, because the disk is full or failed. The
            journal is unchanged: try again later.
    """
    done = _apply(journal, stores, mark)
    fault_points.hit("recovery.applied")
    journal.begin()
    fault_points.hit("recovery.begun")
    with store_errors(mark):
        mark.unlink(missing_ok=True)
    return done


def open_recovered(
    folder: Path, stores: Stores, segment_bytes: int = SEGMENT_BYTES
) -> tuple[FileJournal, Recovered]:
    """Recover the journal of a worker, and open it.

    Raises:
        JournalBusyError: another process has the journal open.
        StoreError: as in `recover`.
    """
    journal = FileJournal(folder, segment_bytes)
    try:
        return journal, recover(journal, stores, folder / _MARK)
    except BaseException:
        journal.close()
        raise


def recover_abandoned(
    journals: Path, used: Collection[str], stores: Stores, *, wait: bool = False
) -> dict[str, Recovered]:
    """Recover and remove the journals of workers that do not exist any more.

    Args:
        journals: the folder with all journals.
        used: the names of the workers that recover their journals themselves. Journals that another
            process has open are skipped, too.
        stores: the stores.
        wait: wait a second for each journal that another process has open: it may be ending.

    Returns:
        The result of each recovery, by the name of the worker.

    Raises:
        StoreError: as in `recover`.
    """
    found = {}
    with store_errors(journals):
        folders = sorted(path for path in journals.iterdir() if path.is_dir())
    for folder in folders:
        if folder.name in used:
            continue
        try:
            journal = FileJournal(folder, wait=wait)
        except JournalBusyError:
            continue
        try:
            found[folder.name] = _apply(journal, stores, folder / _MARK)
            with store_errors(folder):
                (folder / _MARK).unlink(missing_ok=True)
            journal.remove()
        finally:
            journal.close()
    return found


def apply_all_unapplied(stores: Stores) -> None:
    """Open all stores that have unapplied batches, so that they apply them. Call it before a
    project runs.

    If a store cannot be opened, this is logged; its batches are applied when its project starts.

    Raises:
        StoreError: the folder of the projects cannot be read.
    """
    with store_errors(stores.folder):
        folders = sorted(path for path in stores.folder.iterdir() if path.name.isdecimal())
    for folder in folders:
        if unapplied_files(folder) and stores.exists(int(folder.name)):
            try:
                stores.open(int(folder.name)).close()
            except NodeError as error:
                log.error("project %s: batches stay unapplied: %s", folder.name, error)


def _apply(journal: Journal, stores: Stores, mark: Path) -> Recovered:
    done = Recovered(0, {}, [])
    fatal = _marked(mark)
    for part in in_parts(journal.records(done.damaged.append)):
        for project_id, records in part.items():
            if not stores.exists(project_id):
                continue
            try:
                if project_id in done.unapplied:
                    raise done.unapplied[project_id]
                if project_id == fatal:
                    raise StoreError(
                        reason="the last recovery's process died while it read this store"
                    )
                with store_errors(mark):
                    mark.write_text(str(project_id), "ascii")
                batches = done.batches + _bring_up_to_date(stores, project_id, records)
                done = done._replace(batches=batches)
            except NodeError as error:
                write_unapplied(stores.folder / str(project_id), records)
                done.unapplied[project_id] = error
    for project_id, reason in done.unapplied.items():
        log.error("project %d: batches stay unapplied: %s", project_id, reason)
    for damage in done.damaged:
        log.error("%s", damage)
    return done


def _bring_up_to_date(stores: Stores, project_id: int, records: list[Record]) -> int:
    number = stores.number(project_id)
    missing = [record for record in records if record.number > number]
    if missing:
        with contextlib.closing(stores.open(project_id)) as store:
            apply_records(store, missing)
        fault_points.hit("recovery.store_written")
    return len(missing)


def in_parts(records: Iterable[Record]) -> Iterator[dict[int, list[Record]]]:
    """Group records by project, in parts of about `_PART_BYTES`."""
    part: dict[int, list[Record]] = {}
    size = 0
    for record in records:
        part.setdefault(record.project_id, []).append(record)
        size += len(record.batch)
        if size >= _PART_BYTES:
            yield part
            part, size = {}, 0
    if part:
        yield part


def _marked(mark: Path) -> int:
    """Return the project whose store was open when a recovery was interrupted; 0 if there is
    none."""
    try:
        return int(mark.read_text("ascii"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        log.warning("cannot read %s, the mark of an interrupted recovery", mark)
        return 0
