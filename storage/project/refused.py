"""Refused events: one ring buffer for each process that refuses events before they reach a project.

No guarantee covers refused events, so nothing here is synced, and only a digest of each payload
is kept. A ring that a power cut or a full disk has damaged is deleted.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import msgspec

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.lmdb.environment import FEW_READERS, open_environment, store_errors
from fieldbrook.storage.lmdb.rows import RowTable

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]
    _OpenRing = tuple[lmdb.Environment, list["RowTable[Refusals]"]]

log = logging.getLogger(__name__)

FOLDER = "refused"
CHUNKS_LIMIT = 20_000
RING_BYTES = 4 << 20  # for each of the two tables: about 15,000 refusals
_MAP_BYTES = 32 << 20
_KNOWN, _UNKNOWN = b"known", b"unknown"


class Refusal(msgspec.Struct, array_like=True, frozen=True):
    """One event that was refused.

    `project` and `publisher` are the sender's own text, shortened, and never contain its token.
    `source` is a name of `history.SOURCES`. `key` and `reason` are the key and the text of the
    error. `digest` is the first 16 bytes of the SHA-256 of the received data, in hexadecimal.
    """

    time_ms: int
    event_id: str
    project: str
    publisher: str
    event_type: str
    source: str
    key: str
    reason: str
    size: int
    digest: str


class Refusals(msgspec.Struct, array_like=True, frozen=True):
    """The refusals of one moment, and the number of further ones that were counted but not kept."""

    kept: list[Refusal]
    more: int = 0


class RefusedRing:
    """The writer of a ring, owned by one process. Open it after the fork."""

    def __init__(self, folder: Path, part: str) -> None:
        """Open the ring of the process `part` below the node's data folder `folder`.

        Raises:
            StoreError: the ring can be neither opened nor created again.
        """
        path = ring_path(folder, part)
        try:
            self._open(path)
        except StoreError as error:
            log.info(
                "earlier records of refused events are deleted, because they cannot be read: %s",
                error,
            )
            shutil.rmtree(path, ignore_errors=True)
            self._open(path)

    def _open(self, path: Path) -> None:
        with _rings_lock:
            self._environment = open_environment(
                path, map_size=_MAP_BYTES, sync=False, max_readers=FEW_READERS
            )
            try:
                with store_errors(path):
                    self._tables = {
                        known: _table(self._environment, name, create=True)
                        for known, name in ((True, _KNOWN), (False, _UNKNOWN))
                    }
            except BaseException:
                self._environment.close()
                raise
            self._path = path.absolute()
            _open_rings[self._path] = self

    def read(self) -> _OpenRing:
        """Return the environment and the tables, for readers in the same process."""
        return self._environment, list(self._tables.values())

    def write(self, refusals: Refusals, *, known: bool) -> None:
        """Append refusals to the table for known or for unknown projects.

        The tables are separate, so that refusals for projects that do not exist cannot
        displace others.

        Raises:
            StoreError: there is no room for them.
        """
        table = self._tables[known]
        with store_errors():
            with self._environment.begin(write=True) as txn:
                table.append(txn, [refusals])
            table.committed(1)

    def close(self) -> None:
        """Close the ring."""
        with _rings_lock:
            del _open_rings[self._path]
            self._environment.close()


def read_refused(
    folder: Path, limit: int, *, event_id: str | None = None, project: str | None = None
) -> tuple[list[Refusal], int]:
    """Return the newest refusals of all processes, and how many were counted but not kept.

    `event_id` and `project` select the refusals of one event or for one project.

    Raises:
        StoreError: a ring cannot be read.
    """
    found: list[Refusal] = []
    more = 0
    for path in sorted((folder / FOLDER).glob("*/data.mdb")):
        with _rings_lock, _open_ring(path.parent.absolute()) as opened:
            kept, hidden = _read(opened, limit, event_id, project)
        found += kept
        more += hidden
    found.sort(key=lambda refusal: refusal.time_ms, reverse=True)
    return found[:limit], more


def ring_path(folder: Path, part: str) -> Path:
    """Return the folder of a process's ring."""
    return folder / FOLDER / part.replace(":", "-")


# LMDB lets a process open an environment only once. A process therefore reads its own ring
# through the writer's environment, and only one thread at a time opens the other rings.
_open_rings: dict[Path, RefusedRing] = {}
_rings_lock = threading.Lock()


@contextmanager
def _open_ring(path: Path) -> Iterator[_OpenRing]:
    own = _open_rings.get(path)
    if own is not None:
        # Use the tables that are already open: opening a table in an environment that is open for
        # writing begins a write transaction, which can deadlock with that of another thread.
        yield own.read()
        return
    environment = open_environment(path, map_size=0, readonly=True)
    try:
        with store_errors():
            tables = []
            for name in (_KNOWN, _UNKNOWN):
                with suppress(lmdb.NotFoundError):  # the ring is being created
                    tables.append(_table(environment, name, create=False))
        yield environment, tables
    finally:
        environment.close()


def _table(environment: lmdb.Environment, name: bytes, *, create: bool) -> RowTable[Refusals]:
    return RowTable(
        environment, name, Refusals, CHUNKS_LIMIT, create=create, limit_bytes=RING_BYTES
    )


def _read(
    opened: _OpenRing, limit: int, event_id: str | None, project: str | None
) -> tuple[list[Refusal], int]:
    environment, tables = opened
    found: list[Refusal] = []
    more = 0
    with store_errors():
        for table in tables:
            with environment.begin() as txn:
                chunks = list(table.backwards(txn))
            more += sum(chunk.more for chunk in chunks)
            matching = _matching(chunks, event_id, project)
            found += itertools.islice(matching, limit)
    return found, more


def _matching(
    chunks: Sequence[Refusals], event_id: str | None, project: str | None
) -> Iterator[Refusal]:
    for chunk in chunks:
        for refusal in reversed(chunk.kept):
            if event_id in (None, refusal.event_id) and project in (None, refusal.project):
                yield refusal
