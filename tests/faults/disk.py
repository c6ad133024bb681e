"""A model of a disk: what it may hold after a power cut, given a record of every write.

The record is made by `writelog.c`. Data that were synced before the cut are on the disk. Each piece
(a page, or a sector of 512 bytes) that was written after the last sync of its file has the content
of any of these writes, or the synced content. A name that was created, changed or removed is in the
old or the new state, unless its folder was synced afterwards: POSIX promises no more, but some file
systems do.
"""

from __future__ import annotations

import itertools
import mmap
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

PAGE, SECTOR = 4096, 512
_HEAD = struct.Struct("<5Q4I")
_PASSING = frozenset({"run"})  # of a running node


class Kind(IntEnum):
    """The kinds of calls; the numbers are those of `writelog.c`."""

    CREATE, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, LINK, MKDIR, RMDIR, UNSEEN = range(1, 11)


class Record(NamedTuple):
    """One call. `began` is set for a sync: after it, all records with a lower number are on the
    disk."""

    number: int
    kind: Kind
    inode: int
    offset: int
    began: int
    synced: bool
    path: str
    second: str
    data: memoryview


def read(folder: Path) -> list[Record]:
    """Read the records of all processes, in their order, without records that a kill has cut
    off."""
    found: list[Record] = []
    for path in folder.iterdir():
        if path.name.isdecimal() and path.stat().st_size:
            with path.open("rb") as file:
                found += _parse(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
    return sorted(found)


def _parse(content: memoryview) -> Iterator[Record]:
    at = 0
    while at + _HEAD.size <= len(content):
        number, inode, offset, began, size, kind, flags, first, second = _HEAD.unpack_from(
            content, at
        )
        at += _HEAD.size
        ends = (at + first, at + first + second, at + first + second + size)
        if ends[-1] > len(content):
            return
        path, other = str(content[at : ends[0]], "utf-8"), str(content[ends[0] : ends[1]], "utf-8")
        yield Record(
            *(number, Kind(kind), inode, offset, began, bool(flags & 1), path, other),
            content[ends[1] : ends[2]],
        )
        at = ends[-1]


class Cut(NamedTuple):
    """The choices of the disk. `piece` is in bytes; `unsynced` is the probability that data without
    a sync are on the disk; with `journal`, names change in their order, as on a journaling file
    system."""

    piece: int
    unsynced: float
    journal: bool


def any_cut(chance: random.Random) -> Cut:
    """Choose a cut: all data without a sync are on the disk, none of them, or some."""
    share = chance.choice((0.0, 1.0, 0.5, 0.5, 0.9, 0.1))
    return Cut(chance.choice((PAGE, SECTOR)), share, chance.random() < 0.5)


@dataclass(slots=True, eq=False)
class _File:
    synced: bytearray = field(default_factory=bytearray)
    pending: list[Record] = field(default_factory=list)

    def sync(self, began: int) -> None:
        """Record that all writes with a lower number are on the disk."""
        count = sum(1 for _ in itertools.takewhile(lambda r: r.number < began, self.pending))
        for record in self.pending[:count]:
            if record.kind is Kind.TRUNCATE:
                _resize(self.synced, record.offset)
            else:
                _put(self.synced, record.offset, record.data)
        del self.pending[:count]

    def content(self, chance: random.Random, cut: Cut) -> bytearray:
        """Return the content on the disk."""
        found = bytearray(self.synced)
        kept = self.pending[: self._end(chance, cut)]
        versions = _versions(kept, chance, cut)
        for number, record in enumerate(kept):
            if record.kind is Kind.TRUNCATE:
                _resize(found, record.offset)
                continue
            for piece, start, stop in _pieces(record, cut.piece):
                if versions[piece] >= number:
                    at = record.offset
                    _put(found, start, record.data[start - at : stop - at])
        if chance.random() < cut.unsynced:  # the size, and nothing behind it
            size = max((r.offset + len(r.data) for r in kept), default=0)
            _resize(found, max(size, len(found)))
        return found

    def _end(self, chance: random.Random, cut: Cut) -> int:
        """Return the size on the disk: a truncation has happened or not, and later writes only if
        it has."""
        for number, record in enumerate(self.pending):
            later = self.pending[number:]
            unsure = record.kind is Kind.TRUNCATE and not any(each.synced for each in later)
            if unsure and chance.random() >= cut.unsynced:
                return number
        return len(self.pending)


def _versions(records: Sequence[Record], chance: random.Random, cut: Cut) -> dict[int, int]:
    """Return for each piece the number of the last write on the disk; -1 for none."""
    writes: dict[int, list[int]] = {}
    least: dict[int, int] = {}
    for number, record in enumerate(records):
        if record.kind is Kind.WRITE:
            for piece, _, _ in _pieces(record, cut.piece):
                writes.setdefault(piece, []).append(number)
                if record.synced:
                    least[piece] = number
    chosen = {}
    for piece, numbers in writes.items():
        version = -1
        if chance.random() < cut.unsynced:
            version = numbers[-1] if cut.unsynced == 1.0 else chance.choice(numbers)
        chosen[piece] = max(version, least.get(piece, -1))
    return chosen


def _pieces(record: Record, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield each piece that a write touches, and the part of the write in it."""
    start, end = record.offset, record.offset + len(record.data)
    while start < end:
        stop = min(end, (start // size + 1) * size)
        yield start // size, start, stop
        start = stop


def _resize(content: bytearray, size: int) -> None:
    if len(content) > size:
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _put(content: bytearray, at: int, data: memoryview) -> None:
    if len(content) < at:
        _resize(content, at)
    content[at : at + len(data)] = data


@dataclass(slots=True, eq=False)
class _Folder:
    """A folder: `names` are in the system's view, `synced` are certainly on the disk."""

    names: dict[str, _Node] = field(default_factory=dict)
    synced: dict[str, _Node] = field(default_factory=dict)


_Node = _File | _Folder


class _Change(NamedTuple):
    """Names that are changed or removed, all at once."""

    number: int
    names: tuple[tuple[_Folder, str, _Node | None], ...]

    def touches(self, folder: _Folder) -> bool:
        return any(each is folder for each, _, _ in self.names)

    def shares_a_name_with(self, other: _Change) -> bool:
        mine = {(id(folder), name) for folder, name, _ in self.names}
        return any((id(folder), name) in mine for folder, name, _ in other.names)


class UnseenWriteError(Exception):
    """The record is incomplete: something was written in a way that is not recorded."""


class Disk:
    """The disk below one folder, which was empty at the first record.

    `ignore_syncs` is for a control: a disk that lies.
    """

    def __init__(
        self, root: Path, records: Sequence[Record], *, ignore_syncs: bool = False
    ) -> None:
        self._root, self._records = root, records
        self._ignore_syncs = ignore_syncs
        self._top = _Folder()
        self._nodes: dict[int, _Node] = {}
        self._pending: list[_Change] = []
        self._next = 0

    def advance(self, number: int) -> None:
        """Apply all records before this number."""
        while self._next < len(self._records) and self._records[self._next].number < number:
            record = self._records[self._next]
            self._next += 1
            if not (_is_passing(record.path, self._root) or _is_passing(record.second, self._root)):
                self._do(record)

    def write_to(self, target: Path, chance: random.Random, cut: Cut) -> None:
        """Write a folder in a state in which the disk may be after a cut at this place."""
        names: dict[int, dict[str, _Node]] = {}

        def names_of(folder: _Folder) -> dict[str, _Node]:
            return names.setdefault(id(folder), dict(folder.synced))

        for change in self._there(chance, cut):
            for folder, name, node in change.names:
                _set(names_of(folder), name, node)

        def write(folder: _Folder, path: Path) -> None:
            path.mkdir(mode=0o700)
            for name, node in names_of(folder).items():
                if isinstance(node, _Folder):
                    write(node, path / name)
                elif not (path / name).exists():
                    (path / name).touch(mode=0o600)
                    (path / name).write_bytes(node.content(chance, cut))

        write(self._top, target)

    def _there(self, chance: random.Random, cut: Cut) -> list[_Change]:
        if cut.unsynced in (0.0, 1.0):
            return self._pending if cut.unsynced else []
        if cut.journal:
            return self._pending[: chance.randint(0, len(self._pending))]
        return [change for change in self._pending if chance.random() < cut.unsynced]

    # ---------------------------------------------------------------- one record

    def _do(self, record: Record) -> None:
        match record.kind:
            case Kind.WRITE | Kind.TRUNCATE:
                node = self._nodes.get(record.inode)
                if isinstance(node, _File):
                    node.pending.append(record)
            case Kind.SYNC:
                self._sync(record)
            case Kind.CREATE | Kind.MKDIR:
                self._make(record)
            case Kind.UNLINK | Kind.RMDIR:
                if record.path != str(self._root):
                    self._change(record, (record.path, None))
            case Kind.RENAME:
                node = self._find(record.path)
                self._change(record, (record.path, None), (record.second, node))
            case Kind.LINK:
                self._change(record, (record.second, self._find(record.path)))
            case Kind.UNSEEN:
                raise UnseenWriteError(f"{record.path or record.inode}")

    def _make(self, record: Record) -> None:
        if record.path == str(self._root):
            self._nodes[record.inode] = self._top
            return
        known = self._find(record.path)
        if known is not None and known is self._nodes.get(record.inode):
            return  # two processes found no file, and both have recorded the creation
        node = _File() if record.kind is Kind.CREATE else _Folder()
        self._nodes[record.inode] = node
        self._change(record, (record.path, node))

    def _sync(self, record: Record) -> None:
        if self._ignore_syncs:
            return
        node = self._nodes.get(record.inode)
        if isinstance(node, _File):
            node.sync(record.began)
        elif node is not None:
            self._sync_names(node, record.began)

    def _sync_names(self, folder: _Folder, began: int) -> None:
        settled: list[_Change] = []
        for change in reversed(self._pending):
            by_name = any(change.shares_a_name_with(later) for later in settled)
            if (change.number < began and change.touches(folder)) or by_name:
                settled.append(change)
        for change in reversed(settled):
            self._pending.remove(change)
            for where, name, node in change.names:
                _set(where.synced, name, node)

    def _change(self, record: Record, *names: tuple[str, _Node | None]) -> None:
        changes = []
        for path, node in names:
            folder, _, name = path.rpartition("/")
            parent = self._find(folder)
            if isinstance(parent, _Folder):
                _set(parent.names, name, node)
                changes.append((parent, name, node))
        self._pending.append(_Change(record.number, tuple(changes)))

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._top
        for name in Path(path).relative_to(self._root).parts:
            node = node.names.get(name) if isinstance(node, _Folder) else None
        return node


def _set(names: dict[str, _Node], name: str, node: _Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _is_passing(path: str, root: Path) -> bool:
    rest = path.removeprefix(f"{root}/")
    return rest != path and rest.partition("/")[0] in _PASSING
