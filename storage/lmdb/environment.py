"""Opens LMDB environments, and turns failures of LMDB into `StoreError` with a readable reason.

LMDB keeps a map and POSIX locks per process: open an environment after the fork, never
before, and only once per process.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.lmdb import lock_file
from fieldbrook.system.fsync import make_folder, sync_folder

MAX_READERS = 4096  # of the registry, which every process of the node reads
FEW_READERS = 512  # of a store that one process writes and the gateways read
DATA = "data.mdb"
_SPARE_READS = 16  # finished read transactions kept for renewal: 0.4 us instead of 3 us
_SIZE_OF_FILE = 0
# A writer may enlarge the map of a full store. A reader with a smaller map than the store could
# read nothing until it is opened again, so its map gets this many bytes more. They are address
# space, not memory.
_MORE_FOR_READERS = 1 << 30
_PROBE = b"\xffprobe"  # a key among the names of the databases; no database has this name

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_PERMISSION = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def open_environment(
    path: Path,
    *,
    map_size: int,
    readonly: bool = False,
    max_dbs: int = 128,
    sync: bool = True,
    max_readers: int = MAX_READERS,
) -> lmdb.Environment:
    """Open the environment in the folder `path`; a writer creates it with mode 0700.

    Args:
        path: the folder; its parents are created too.
        map_size: the largest size of the store in bytes. A reader uses the size in the file, and
            can follow when a writer enlarges it by up to 1 GiB.
        readonly: no write transaction is possible and nothing is created.
        max_dbs: how many named databases may be opened.
        sync: fsync every commit before it returns. Without it a power cut may destroy the store.
        max_readers: the number of reader slots that a writer creates; a reader uses the existing
            ones.

    Raises:
        StoreError: the store is absent (for a reader), foreign or corrupt, or permission is
            denied.
    """
    with store_errors(path):
        if not readonly:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
        max_readers = _allocate_locks(path, max_readers, readonly=readonly)
        environment = lmdb.open(
            str(path),
            map_size=_SIZE_OF_FILE if readonly else map_size,
            readonly=readonly,
            create=not readonly,
            mode=0o600,
            max_dbs=max_dbs,
            sync=sync,
            max_readers=max_readers,
            max_spare_txns=_SPARE_READS,
        )
        if readonly:
            environment.set_mapsize(environment.info()["map_size"] + _MORE_FOR_READERS)
        if sync and not readonly and environment.info()["last_txnid"] == 0:
            # LMDB syncs the content of its files, but not the folder that lists them. Every
            # writer that opens the store before its first commit does this.
            sync_folder(path)
            make_folder(path)
        return environment


def _allocate_locks(path: Path, max_readers: int, *, readonly: bool) -> int:
    if readonly and not (path / DATA).exists():
        return max_readers  # LMDB itself reports that there is no store
    try:
        return lock_file.allocate(path, max_readers, resize=not readonly)
    except OSError as error:
        if readonly and error.errno == errno.EROFS:
            return max_readers  # on a read-only file system LMDB reads without a lock file
        raise


@contextmanager
def store_errors(path: Path | str | None = None) -> Iterator[None]:
    """Turn failures of LMDB and of the file system inside the block into `StoreError`.

    The reason begins with `path`; without a path it does not name the store.
    """
    try:
        yield
    except (lmdb.Error, OSError) as error:
        raise store_error(path, error) from error


def store_error(path: Path | str | None, error: lmdb.Error | OSError) -> StoreError:
    """Make the `StoreError` for a failure; its reason names the store and the cause."""
    reason = _plain(error)
    return StoreError(reason=reason if path is None else f"{path}: {reason}")


def _plain(error: lmdb.Error | OSError) -> str:
    number = error.errno if isinstance(error, OSError) else getattr(error, "code", None)
    if isinstance(error, lmdb.MapFullError):
        return "the store has reached its size limit (map size); raise it or remove data"
    if number in _NO_SPACE or isinstance(error, lmdb.DiskError):
        return "the disk is full"
    if number == errno.EIO:
        # LMDB also reports a short write as EIO, and a disk that fills up causes short writes.
        return "the disk is full or failing (input/output error)"
    if number in _NO_PERMISSION:
        return f"no permission to open or write it ({error})"
    if number == errno.ENOENT:
        return "there is no store here"
    if isinstance(error, lmdb.InvalidError):
        return "its data file is not a store of this node (foreign or overwritten file)"
    if isinstance(error, lmdb.VersionMismatchError):
        return "its data file was written by another version of LMDB"
    if isinstance(error, (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.PanicError)):
        return f"the store is corrupt ({error}); restore it from a backup"
    if isinstance(error, lmdb.ReadersFullError):
        return "too many processes read it at the same time"
    return str(error)


def write_probe(environment: lmdb.Environment, size: int) -> None:
    """Write `size` bytes and remove them, both synced. Errors of LMDB are not converted.

    LMDB reuses freed pages only two transactions later. A transaction with one byte comes
    first, so that the probe can use the pages that the last transaction freed; even a full
    map may have room for one byte.
    """
    with environment.begin(write=True) as txn:
        txn.put(_PROBE, b"?")
    with environment.begin(write=True) as txn:
        txn.put(_PROBE, bytes(size))
    with environment.begin(write=True) as txn:
        txn.delete(_PROBE)


def used_bytes(environment: lmdb.Environment) -> int:
    """Return the high-water mark of a store's map in bytes; freed pages count, too."""
    return (int(environment.info()["last_pgno"]) + 1) * int(environment.stat()["psize"])


def reader_check(environment: lmdb.Environment) -> int:
    """Free the reader slots of processes that died; call it when a child has exited.

    Returns:
        The number of freed slots. The slot of a dead process would keep old pages from being
        reused.
    """
    with store_errors(environment.path()):
        return environment.reader_check()
