"""Watches the sources of an applet folder: finds the files that changed since the last scan.

A file counts as changed only if its content differs. So a build that rewrites one of its sources
with the same content, such as a lock file, is not a change.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from fieldbrook.system.regular_file import read_regular_file
from fieldbrook.workbench.scaffold import MANIFEST, Recipe, ScaffoldError

FILES_LIMIT = 2_000
_HASHED_BYTES = 16 << 20
_FRESH_NS = 100_000_000
"""A file that changed this recently is read again, because its next change may get the same
time."""
_IGNORED_FOLDERS = ("build", "node_modules", "target", "__pycache__", ".*")
_IGNORED_FILES = ("*.wasm", "*.wasm.map", "*.o", "*~", "*.sw?", "*.tmp", "#*#", "4913", ".*")
_NO_SOURCES = (MANIFEST, "*.md", "LICENSE*", "*.jsonl", "device.sh")


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a file: its size and times, and the digest of its content."""

    stamp: tuple[int, int, int]
    digest: bytes
    is_fresh: bool


Snapshot = Mapping[Path, Seen]


def look(
    folder: Path,
    ignored: Iterable[str] = (),
    others: Iterable[Path] = (),
    known: Snapshot | None = None,
) -> Snapshot:
    """Return the present state of the watched files.

    Args:
        folder: the applet folder. Build output, hidden files and copies of editors are left out.
        ignored: patterns of names of further files and folders that are left out.
        others: further files; files that do not exist are left out.
        known: an earlier result; only files that differ from it are read.

    Raises:
        ScaffoldError: there are more than `FILES_LIMIT` files.
        OSError: the folder cannot be read.
    """
    known = known or {}
    found: dict[Path, Seen] = {}
    for path in (*_files(folder, tuple(ignored)), *others):
        try:
            found[path] = _see(path, known.get(path))
        except OSError:  # the file is being removed, or cannot be read
            continue
        if len(found) > FILES_LIMIT:
            raise ScaffoldError(
                f"{folder} has more than {FILES_LIMIT} files to watch",
                f"name those that are no sources in `ignore` in {folder / MANIFEST}",
            )
    return found


def changed(before: Snapshot, after: Snapshot) -> list[Path]:
    """Return the files that were added, removed or have another content, sorted."""
    return sorted(
        path
        for path in before.keys() | after.keys()
        if path not in before or path not in after or before[path].digest != after[path].digest
    )


def require_sources(folder: Path, recipe: Recipe, files: Snapshot) -> None:
    """Check that a folder has a build command and sources.

    Raises:
        ScaffoldError: the recipe has no command, or the folder has no sources.
    """
    if not recipe.wat and not recipe.steps:
        raise ScaffoldError(
            f"{folder / MANIFEST} has no build command",
            "give `steps`, or `wat` for WebAssembly text, in its table [build]",
        )
    if recipe.wat and not (folder / recipe.wat).is_file():
        raise ScaffoldError(f"{folder / recipe.wat} does not exist, but {MANIFEST} names it")
    if not any(path.is_relative_to(folder) and not _is(path.name, _NO_SOURCES) for path in files):
        raise ScaffoldError(
            f"{folder} has no sources: there is only {MANIFEST}",
            "create an applet with sources with `fieldbrook applet new`",
        )


def _files(folder: Path, ignored: tuple[str, ...]) -> Iterator[Path]:
    todo = [folder]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if not _is(entry.name, (*_IGNORED_FOLDERS, *ignored)):
                        todo.append(Path(entry.path))
                elif not _is(entry.name, (*_IGNORED_FILES, *ignored)):
                    yield Path(entry.path)


@lru_cache(2 * FILES_LIMIT)
def _is(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _see(path: Path, known: Seen | None) -> Seen:
    """Raises OSError: it cannot be read, or is not a regular file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is not a regular file")
    stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
    if known is not None and known.stamp == stamp and not known.is_fresh:
        return known
    is_fresh = time.time_ns() - status.st_mtime_ns < _FRESH_NS
    if status.st_size > _HASHED_BYTES:
        return Seen(stamp, repr(stamp).encode(), is_fresh)
    return Seen(stamp, blake2b(read_regular_file(path, _HASHED_BYTES)).digest(), is_fresh)
