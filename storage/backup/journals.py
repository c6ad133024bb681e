"""The journals of a data folder in backups and in verifications.

A store may lack the last batches, which only the journal of a worker has. A backup contains no
journal. Instead it contains these batches in files beside the copy of the store. They are applied
when the store is first opened.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from fieldbrook.core.errors import JournalDamagedError, StoreError
from fieldbrook.storage.journal.lock import is_locked
from fieldbrook.storage.journal.protocol import Record
from fieldbrook.storage.journal.records import HEAD_BYTES, head_at
from fieldbrook.storage.journal.recovery import JOURNALS, in_parts
from fieldbrook.storage.journal.segments import DAMAGED_SUFFIX, find, read_segments
from fieldbrook.storage.journal.unapplied import read_unapplied, unapplied_files, write_unapplied
from fieldbrook.storage.lmdb.codec import decode_record
from fieldbrook.storage.lmdb.environment import store_errors
from fieldbrook.storage.project.commit.batch import Batch
from fieldbrook.storage.project.store import store_path
from fieldbrook.storage.project.stored import stored_number

_ATTEMPTS = 20
_SHOWN = 10


def _folders(data: Path) -> list[Path]:
    folder = data / JOURNALS
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def copy_journals(data: Path, target: Path) -> None:
    """Copy all journals; the node may be running. Call this before the stores are copied.

    Raises:
        StoreError: a journal cannot be read, or the copy cannot be written.
    """
    for folder in _folders(data):
        with store_errors(folder):
            if not any(_copied(folder, target / folder.name) for _ in range(_ATTEMPTS)):
                raise StoreError(reason=f"{folder}: the journal changes too quickly; try again")


def _copied(folder: Path, target: Path) -> bool:
    """Copy a journal; return False if a segment was reused meanwhile."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o700, parents=True)
    try:
        before = find(folder, folder.name)
        for found in before:
            shutil.copyfile(found.path, target / found.path.name)
    except FileNotFoundError:
        return False
    return before == find(folder, folder.name)


def add_batches(
    copied: Path, projects: Path, unreadable: Collection[int] = ()
) -> tuple[set[int], list[str]]:
    """Save the batches that copied stores lack in files beside them.

    Args:
        copied: the copied journals; they are removed at the end.
        projects: the copied stores.
        unreadable: projects whose stores cannot be read; they get all batches.

    Returns:
        The projects that got batches, and the damage in the journals.

    Raises:
        StoreError: a copy cannot be read or written.
    """
    added, damaged = set(), []
    for folder in sorted(copied.iterdir()) if copied.is_dir() else ():
        found = find(folder, folder.name)
        for part in in_parts(read_segments(found, lambda error: damaged.append(_plain(error)))):
            for project_id, records in part.items():
                target = projects / str(project_id)
                number = 0 if project_id in unreadable else stored_number(target)
                (target / "lock.mdb").unlink(missing_ok=True)
                missing = [record for record in records if record.number > number]
                if missing:
                    write_unapplied(target, missing)
                    added.add(project_id)
    shutil.rmtree(copied, ignore_errors=True)
    return added, damaged


def entries_only_in_journals(data: Path) -> dict[int, int]:
    """Count the outbox entries of batches that the stores lack, by project; a node may be running.

    Raises:
        StoreError: a store or a journal cannot be read.
    """
    entries: dict[int, dict[int, int]] = defaultdict(dict)
    for record, _ in _all_records(data, [], used=True):
        count = len(decode_record(record.batch, Batch).sent)
        if count:
            entries[record.project_id][record.number] = count
    found = {}
    for project_id, counts in entries.items():
        number = stored_number(store_path(data / "projects", project_id))
        found[project_id] = sum(counts[each] for each in counts if each > number)
    return found


def count_waiting(data: Path, numbers: Mapping[int, int], ignored: Collection[int] = ()) -> int:
    """Count the batches that the stores lack, in journals that no running worker has open.

    Args:
        data: the data folder.
        numbers: the number of the last batch in each store. Other projects have no store yet.
        ignored: projects whose batches are not counted.
    """
    batches = {(record.project_id, record.number) for record, _ in _all_records(data, [])}
    return sum(
        number > numbers.get(project_id, 0)
        for project_id, number in batches
        if project_id not in ignored
    )


# ---------------------------------------------------------------- verification


def check_journals(data: Path, numbers: Mapping[int, int]) -> tuple[list[str], int]:
    """Check all journals that no running worker has open, and the unapplied batches of all stores.

    Args:
        data: the data folder.
        numbers: the number of the last batch in the store of each project in the registry, 0
            without a store. Batches of other projects are not counted.

    Returns:
        One line for each defect, and the number of batches that are not in their stores yet.
    """
    defects: list[str] = []
    waiting: dict[int, set[int]] = defaultdict(set)

    for record, place in _all_records(data, defects):
        if record.number <= numbers.get(record.project_id, record.number):
            continue
        waiting[record.project_id].add(record.number)
        try:
            decode_record(record.batch, Batch)
        except StoreError as error:
            name = f"batch {record.number} of project {record.project_id}"
            defects.append(f"{place}: {name}: {error}")
    for project_id, known in sorted(waiting.items()):
        lost = sorted(set(range(numbers[project_id] + 1, max(known))) - known)
        if lost:
            shown = ", ".join(map(str, lost[:_SHOWN]))
            defects.append(
                f"projects/{project_id}: {len(lost)} batches before batch {max(known)} are neither "
                f"in the store nor in a journal: {shown}"
            )
    return defects, sum(map(len, waiting.values()))


def _all_records(
    data: Path, defects: list[str], *, used: bool = False
) -> Iterator[tuple[Record, str]]:
    """Iterate over the records of all journals; those of running workers are included only if
    `used` is set."""
    for folder in _folders(data):
        place = f"{JOURNALS}/{folder.name}"
        for aside in sorted(folder.glob(f"*{DAMAGED_SUFFIX}")):
            defects.append(
                f"{place}/{aside.name}: damage was found in this file when the worker started; "
                "the log names the batches; delete the file when you have seen them"
            )
        if used or not is_locked(folder):
            yield from _records(folder, place, defects)
    projects = data / "projects"
    for folder in sorted(projects.iterdir()) if projects.is_dir() else ():
        for path in unapplied_files(folder) if folder.is_dir() else ():
            place = f"projects/{folder.name}/{path.name}"
            try:
                yield from ((record, place) for record in read_unapplied(path))
            except StoreError as error:
                defects.append(f"{place}: {error}")


def _records(folder: Path, place: str, defects: list[str]) -> Iterator[tuple[Record, str]]:
    def note(error: JournalDamagedError) -> None:
        defects.append(f"{place}: {_plain(error)}{_events(folder, error)}")

    try:
        yield from ((record, place) for record in read_segments(find(folder, folder.name), note))
    except StoreError as error:
        defects.append(f"{place}: {error}")


def _plain(error: JournalDamagedError) -> str:
    """Describe damage without the path of the data folder."""
    file = str(error.details["file"])
    return f"{file}: {str(error).partition(f'{file}: ')[2]}"


def _events(folder: Path, error: JournalDamagedError) -> str:
    """Name the events of a damaged batch, if the batch can still be decoded."""
    if not error.details["number"]:
        return ""
    at = int(error.details["offset"])
    data = memoryview((folder / str(error.details["file"])).read_bytes())
    head = head_at(data, at)
    try:
        batch = decode_record(bytes(data[at + HEAD_BYTES :][: head.length if head else 0]), Batch)
    except StoreError:
        return "; its events cannot be read"
    events = [record[0] for chunk in batch.chunks for record in chunk.events]
    more = f" and {len(events) - _SHOWN} more" if len(events) > _SHOWN else ""
    return f"; its events: {', '.join(map(str, events[:_SHOWN]))}{more}"
