"""Checks of the data folder: its user, its disk, and its stores."""

from __future__ import annotations

import os
import shutil
import statistics
import time
import uuid
from pathlib import Path

from fieldbrook.core.errors import StoreError
from fieldbrook.core.findings import Finding
from fieldbrook.security import node_secrets
from fieldbrook.storage import data_lock, upgrade
from fieldbrook.system.kernel import sync_data

_MIB = 1 << 20
_ROOM = 256 * _MIB  # for journals, which are created at the start of each worker
_SYNCS = 9
_SLOW_SYNC_MS = 20.0
_BLOCK = b"\0" * 4096
_VOLATILE = {"tmpfs", "ramfs", "overlay"}
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "fuse.sshfs", "fuse.glusterfs"}


def data_folder(data: Path, *, running: bool) -> Finding:
    """Check whether the folder can be used, and whether a node uses it."""
    at = data.absolute()
    if not data.exists():
        above = _existing(data)
        if not os.access(above, os.W_OK | os.X_OK):
            text = f"{at} cannot be created: {above} is not writable for this user"
            return Finding("data folder", "failed", text)
        return Finding("data folder", "ok", f"{at} will be created")
    if not data.is_dir():
        return Finding("data folder", "failed", f"{at} is not a folder")
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        text = f"{at} belongs to user {data.stat().st_uid}: run this as the node's user"
        return Finding("data folder", "failed", text)
    text = f"{at}, a node runs on it" if running else f"{at}, no node runs on it"
    return Finding("data folder", "ok", text, {"running": running})


def file_system(data: Path) -> Finding:
    """Check the kind of the file system: it must store data durably, and be local."""
    kind = _file_system_of(_existing(data).resolve())
    facts = {"kind": kind}
    if not kind:
        return Finding("file system", "skipped", "the system does not say which")
    if kind in _VOLATILE:
        text = f"{kind} forgets its files: put the data folder on a disk or a volume"
        return Finding("file system", "warning", text, facts)
    if kind in _REMOTE:
        text = f"{kind} is remote: memory maps and locks are not safe there; use a local disk"
        return Finding("file system", "failed", text, facts)
    return Finding("file system", "ok", kind, facts)


def space(data: Path, reserve: int) -> Finding:
    """Check the free space of the disk, and how many more files it can have."""
    at = _existing(data)
    free, found = shutil.disk_usage(at).free, os.statvfs(at)
    facts = {"free": free, "files": found.f_favail}
    if free < reserve + _ROOM:
        text = f"{free // _MIB} MiB are free: a node needs {(reserve + _ROOM) // _MIB} MiB"
        return Finding("disk space", "failed", text, facts)
    if found.f_files and found.f_favail < 10_000:
        return Finding("disk space", "warning", f"room for {found.f_favail} more files", facts)
    return Finding("disk space", "ok", f"{free // _MIB} MiB are free", facts)


def syncs(data: Path) -> Finding:
    """Check the duration of a synced write; each acknowledged event waits for one."""
    at = _existing(data) / f".fieldbrook-doctor-{uuid.uuid4().hex}"
    took = []
    try:
        descriptor = os.open(at, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, _BLOCK, 0)
            os.fsync(descriptor)
            for _ in range(_SYNCS):
                began = time.perf_counter()
                os.pwrite(descriptor, _BLOCK, 0)
                sync_data(descriptor)
                took.append((time.perf_counter() - began) * 1000)
        finally:
            os.close(descriptor)
            at.unlink()
    except OSError as error:
        return Finding("synced write", "failed", f"{at.parent}: {error.strerror}")
    median = statistics.median(took)
    facts = {"median_ms": median, "longest_ms": max(took)}
    text = f"median {median:.2f} ms, longest {max(took):.2f} ms"
    if median > _SLOW_SYNC_MS:
        advice = "a disk with a write cache that survives power cuts answers events sooner"
        return Finding("synced write", "warning", f"{text}: {advice}", facts)
    return Finding("synced write", "ok", text, facts)


def stores(data: Path) -> Finding:
    """Check whether this version can open the stores, and whether it has to convert them first."""
    try:
        behind, total = upgrade.pending(data)
    except StoreError as error:
        return Finding("stores", "failed", str(error))
    if (data / data_lock.RESTORING).exists():
        text = "a restore did not finish: empty the folder and restore again"
        return Finding("stores", "failed", text)
    if behind:
        text = (
            f"{behind} of {total} are of an older version: the next start copies them to "
            f"{data / upgrade.ROLLBACK} and converts them"
        )
        return Finding("stores", "warning", text, {"behind": behind, "stores": total})
    text = (
        f"{total}, of this version; `fieldbrook verify` reads them whole" if total else "none yet"
    )
    return Finding("stores", "ok", text, {"behind": 0, "stores": total})


def secrets(data: Path) -> Finding:
    """Check that the node, and no other user, can read the node's keys."""
    place = data / "secrets"
    if not place.is_dir():
        return Finding("secrets", "ok", "none yet")
    problems = node_secrets.problems_in(place)
    if problems:
        return Finding("secrets", "failed", "; ".join(problems), {"problems": problems})
    if place.stat().st_mode & 0o077:
        return Finding("secrets", "warning", f"others can read {place}: chmod 700 it")
    return Finding("secrets", "ok", "readable, for this user alone")


def _existing(path: Path) -> Path:
    """Return the path itself, or the nearest folder above it that exists."""
    at = path.absolute()
    while not at.exists() and at != at.parent:
        at = at.parent
    return at


def _file_system_of(path: Path) -> str:
    """Return the kind of the file system of a path, by the longest mount point above it."""
    longest, kind = "", ""
    try:
        with Path("/proc/self/mounts").open() as file:
            for line in file:
                _, place, its_kind = line.split()[:3]
                place = place.replace("\\040", " ")
                above = path == Path(place) or Path(place) in path.parents
                if above and len(place) >= len(longest):
                    longest, kind = place, its_kind
    except (OSError, ValueError):
        return ""
    return kind
