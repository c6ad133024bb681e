"""Marks: a file in the folder of a store says up to which record of its stream the store is
complete.

Without a mark, a host that takes a project over reads all records since the last snapshot, which
may be 16 MiB. With a mark, it reads only the records since it gave the project up. A mark is only a
hint: it is used if the store has the batches up to the mark, and the stream still has the marked
record. Therefore the file is not synced.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from fieldbrook.storage.replication.appends import Subject, check_chain
from fieldbrook.storage.replication.connection import Connection
from fieldbrook.storage.replication.records import Entry
from fieldbrook.storage.replication.takeover import read_unchecked

log = logging.getLogger(__name__)

FILE = "stream-mark"


class Mark(msgspec.Struct, frozen=True):
    """The record of a project up to which its store has all batches.

    Attributes:
        position: the position of the record.
        term: the term of the record.
        number: the number of the last batch up to the record.
        size: the size of all records from the last snapshot up to this record, in bytes.
    """

    position: int
    term: int
    number: int
    size: int


def read_mark(folder: Path, stored: int) -> Mark | None:
    """Return the mark of a store; None if there is no valid mark.

    Args:
        folder: the folder of the store.
        stored: the number of the last batch in the store.
    """
    try:
        mark = msgspec.json.decode((folder / FILE).read_bytes(), type=Mark)
    except (OSError, msgspec.MsgspecError):
        return None
    return mark if mark.number <= stored else None


def write_mark(folder: Path, mark: Mark) -> None:
    """Write the mark of a store; it replaces the previous mark."""
    new = folder / f".new-{FILE}"
    try:
        new.write_bytes(msgspec.json.encode(mark))
        new.replace(folder / FILE)
    except OSError as error:  # a later takeover reads more records
        log.info("%s is not written: %s", folder / FILE, error)


def remove_mark(folder: Path) -> None:
    """Remove the mark of a store, if it has one, because the store does not belong to a cluster any
    more.

    Raises:
        OSError: the file cannot be removed.
    """
    (folder / FILE).unlink(missing_ok=True)


def records_after(
    connection: Connection,
    subject: Subject,
    mark: Mark,
    upto: int,
    now: Callable[[], float] = time.monotonic,
) -> list[tuple[int, Entry]] | None:
    """Read the records of a subject after a mark, up to a position.

    Args:
        connection: to the replication engine of this host.
        subject: the subject.
        mark: the mark of the store.
        upto: the position of the last record.
        now: the clock, monotonic seconds.

    Returns:
        None if the stream does not have the marked record any more.

    Raises:
        JournalDamagedError: a record is damaged, or one is missing.
        StreamStalledError: no replica has the records in time.
    """
    if mark.position > upto:
        return None
    found = read_unchecked(connection, subject, mark.position - 1, upto, now)
    records = check_chain(subject.name, found, -1)
    position, entry = next(records)
    if (position, entry.term, entry.number) != (mark.position, mark.term, mark.number):
        return None
    return list(records)
