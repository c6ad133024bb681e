"""Snapshots of stores in a stream, for hosts that lack older records.

A snapshot is a compact copy of a store's file in pieces, and of the files beside it. It is valid
when a record of its subject names it; a host that is not the owner any more cannot append that
record. Then the records that the snapshot contains, and the previous snapshot, are removed from the
stream.
"""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec.structs import replace

from fieldbrook.core.errors import JournalDamagedError, NodeError, StreamStalledError
from fieldbrook.observability import metrics
from fieldbrook.storage.journal.protocol import Record
from fieldbrook.storage.lmdb.codec import decode_record, encode_record
from fieldbrook.storage.lmdb.environment import store_errors
from fieldbrook.storage.replication.appends import Subject
from fieldbrook.storage.replication.connection import Connection, Outgoing
from fieldbrook.storage.replication.records import Entry, Kind
from fieldbrook.storage.replication.streams import MODULES, SNAPSHOTS
from fieldbrook.system.fsync import sync_folder

FILE = "data.mdb"
PIECE_BYTES = 1 << 20
_WINDOW = 4  # pieces in flight
_PIECE_S = 5.0
_TRIES = 5
_AGAIN_S = 0.2  # a replica may lag behind
_PURGE_S = 5.0


class Snapshot(msgspec.Struct, array_like=True, frozen=True):
    """The body of a snapshot's record: the name, number, size and digest of its pieces.

    `others` has the same for each file beside that of the store, by the names of the files.
    """

    name: str
    pieces: int
    size: int
    sha256: bytes
    others: dict[str, Snapshot] = {}


class Plan(NamedTuple):
    """What a store lacks: possibly a snapshot, and then batches."""

    snapshot: Snapshot | None
    batches: list[Record]


def plan(project_id: int, records: Sequence[tuple[int, Entry]], stored: int, number: int) -> Plan:
    """Decide what brings a store up to date.

    Args:
        project_id: the project.
        records: the records of the project in the stream, in order.
        stored: the number of the last batch in the store.
        number: the number of the last batch that was committed.

    Raises:
        JournalDamagedError: batches are missing in the stream.
    """
    if stored > number:
        raise JournalDamagedError(
            reason=f"project {project_id}: the store has batch {stored}, and the stream ends with "
            f"batch {number}"
        )
    batches = [
        Record(project_id, entry.number, entry.body)
        for _, entry in records
        if entry.kind is Kind.BATCH
    ]
    first = batches[0].number if batches else number + 1
    snapshot = None
    # A store without a batch may have files beside it.
    if first > stored + 1 or not stored:
        for _, entry in records:
            if entry.kind is Kind.SNAPSHOT:
                snapshot, stored = decode_record(entry.body, Snapshot), entry.number
    batches = [record for record in batches if record.number > stored]
    if [record.number for record in batches] != list(range(stored + 1, number + 1)):
        raise JournalDamagedError(
            reason=f"project {project_id}: the stream lacks batches after {stored}; "
            f"the last one is {number}"
        )
    return Plan(snapshot, batches)


def upload(connection: Connection, subject: Subject, folder: Path) -> Snapshot:
    """Send the copy of a store to the stream of snapshots.

    Args:
        connection: to the replication engine of this host.
        subject: the subject of the store's project.
        folder: has the copies of the store and of the files beside it, and nothing else.

    Raises:
        StreamStalledError: the stream does not take it.
        StoreError: a file cannot be read.
    """
    with store_errors(folder):
        names = sorted(path.name for path in folder.iterdir())
    made = {name: _upload(connection, subject, folder / name) for name in names}
    return replace(made.pop(FILE), others=made)


def _upload(connection: Connection, subject: Subject, path: Path) -> Snapshot:
    name = secrets.token_hex(8)
    digest, size, count = hashlib.sha256(), 0, 0
    with store_errors(path), path.open("rb") as file:
        while pieces := _read_pieces(file):
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
            messages = [
                Outgoing(_piece_subject(subject, name, count + at), b"", piece)
                for at, piece in enumerate(pieces)
            ]
            _send(connection, messages)
            count += len(pieces)
    metrics.add(metrics.SNAPSHOT_BYTES["stored"], size)
    return Snapshot(name, count, size, digest.digest())


def upload_module(connection: Connection, sha256: str, path: Path) -> None:
    """Send a module to the stream of modules, unless it is there.

    Raises:
        StreamStalledError: the stream does not take it.
        StoreError: the file cannot be read.
    """
    base = f"fb.m.{sha256}"
    question = {"seq": 1, "next_by_subj": f"{base}.end", "batch": 1}
    if list(connection.stream(f"$JS.API.DIRECT.GET.{MODULES.name}", question, _PIECE_S)):
        return
    count = 0
    with store_errors(path), path.open("rb") as file:
        while pieces := _read_pieces(file):
            messages = [
                Outgoing(f"{base}.{count + at}", b"", piece) for at, piece in enumerate(pieces)
            ]
            _send(connection, messages)
            count += len(pieces)
    _send(connection, [Outgoing(f"{base}.end", b"", str(count).encode())])


def download_module(connection: Connection, sha256: str, path: Path) -> None:
    """Read a module from the stream of modules into a file.

    Raises:
        StreamStalledError: the stream does not answer, or lacks the module.
        JournalDamagedError: the module is damaged.
        StoreError: it cannot be written.
    """
    base = f"fb.m.{sha256}"
    found = _piece(connection, MODULES.name, f"{base}.end")
    count = int(found) if found.isdigit() else 0
    digest = hashlib.sha256()
    new = path.with_name(f".new-{path.name}")
    with store_errors(path):
        with new.open("wb") as file:
            for place in range(count):
                piece = _piece(connection, MODULES.name, f"{base}.{place}")
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != sha256:
            new.unlink()
            raise JournalDamagedError(reason=f"module {sha256} of the cluster is damaged")
        new.replace(path)
        sync_folder(path.parent)


def encode(snapshot: Snapshot) -> bytes:
    """Encode a snapshot as the body of its record."""
    return encode_record(snapshot)


def download(connection: Connection, subject: Subject, snapshot: Snapshot, folder: Path) -> None:
    """Replace the store in a folder by a snapshot.

    The store comes last: its number says that the folder has the whole snapshot.

    Raises:
        StreamStalledError: the stream does not answer.
        JournalDamagedError: a piece is missing or damaged; that file is unchanged.
        StoreError: it cannot be written.
    """
    with store_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, other in snapshot.others.items():
        if "/" in name or name in ("", ".", "..", FILE):
            reason = f"{subject.name}: snapshot {snapshot.name} has a file {name!r}"
            raise JournalDamagedError(reason=reason)
        # A database has its write-ahead log in a file of its own.
        stale = list(folder.glob(f"{glob.escape(name)}-*"))
        _download(connection, subject, other, folder / name, stale)
    _download(connection, subject, snapshot, folder / FILE, [folder / "lock.mdb"])


def _download(
    connection: Connection,
    subject: Subject,
    snapshot: Snapshot,
    path: Path,
    stale: Collection[Path],
) -> None:
    """Replace a file, and remove the `stale` ones that belong to it."""
    folder = path.parent
    new = path.with_name(f".new-{path.name}")
    digest, size = hashlib.sha256(), 0
    with store_errors(folder):
        with new.open("wb") as file:
            for piece in _receive(connection, subject, snapshot):
                digest.update(piece)
                size += len(piece)
                if size > snapshot.size:
                    break
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if size != snapshot.size or digest.digest() != snapshot.sha256:
            new.unlink()
            raise JournalDamagedError(
                reason=f"{subject.name}: snapshot {snapshot.name} is damaged: "
                f"{size} bytes instead of {snapshot.size}, or another SHA-256"
            )
        for each in stale:
            each.unlink(missing_ok=True)
        new.replace(path)
        sync_folder(folder)
    metrics.add(metrics.SNAPSHOT_BYTES["loaded"], size)


def names(connection: Connection, subject: Subject) -> set[str]:
    """Return the names of all snapshots of a subject in the stream, complete or not.

    Raises:
        NodeError: the replication engine does not answer.
    """
    base = _base(subject)
    api = f"$JS.API.STREAM.INFO.{SNAPSHOTS.name}"
    found = connection.request(api, {"subjects_filter": f"{base}.>"}, _PURGE_S)
    return {each.removeprefix(f"{base}.").split(".")[0] for each in _subjects_of(found)}


def remove_before(
    connection: Connection, subject: Subject, position: int, earlier: Collection[str]
) -> None:
    """Remove the records of a subject up to a position, and its earlier snapshots.

    Call it after the record of a new snapshot that contains the batches up to `position`.

    Args:
        connection: to the replication engine of this host.
        subject: the subject.
        position: the position of the last record that the snapshot contains.
        earlier: the `names` of snapshots, read before the record of the new snapshot was stored.
            With a later list, a host that was paused here could remove a snapshot that the next
            owner host has stored.

    Raises:
        NodeError: the replication engine does not answer. Records and pieces that were not removed
            are removed after the next snapshot.
    """
    # The last record is always kept, because an empty subject would accept a record of any host.
    question: dict[str, object] = {"filter": subject.name, "seq": position + 1}
    connection.request(f"$JS.API.STREAM.PURGE.{subject.stream}", question, _PURGE_S)
    for name in sorted(earlier):
        question = {"filter": f"{_base(subject)}.{name}.*"}
        connection.request(f"$JS.API.STREAM.PURGE.{SNAPSHOTS.name}", question, _PURGE_S)


def remove_project(connection: Connection, subject: Subject) -> None:
    """Remove all records and snapshots of a project that was removed.

    The id of a project is never used again, so no host needs the last record.

    Raises:
        NodeError: the replication engine does not answer; call it again.
    """
    of_snapshots = f"{_base(subject)}.>"
    for stream, subjects in ((subject.stream, subject.name), (SNAPSHOTS.name, of_snapshots)):
        connection.request(f"$JS.API.STREAM.PURGE.{stream}", {"filter": subjects}, _PURGE_S)


def _subjects_of(info: dict[str, object]) -> list[str]:
    state = info.get("state")
    subjects = state.get("subjects") if isinstance(state, dict) else None
    return list(subjects) if isinstance(subjects, dict) else []


def _base(subject: Subject) -> str:
    return "fb.s." + subject.name.rpartition(".")[2]


def _piece_subject(subject: Subject, name: str, place: int) -> str:
    return f"{_base(subject)}.{name}.{place}"


def _read_pieces(file: BinaryIO) -> list[bytes]:
    return [piece for _ in range(_WINDOW) if (piece := file.read(PIECE_BYTES))]


def _send(connection: Connection, messages: list[Outgoing]) -> None:
    """Send pieces until each is stored. It does not matter if a piece is stored twice."""
    reason: object = "no answer"
    for _ in range(_TRIES):
        try:
            answers = connection.ask_many(messages, _PIECE_S)
        except NodeError as error:
            reason = error
            continue
        messages = [
            message
            for message, answer in zip(messages, answers, strict=True)
            if answer is None or answer.status or b'"error"' in answer.body
        ]
        if not messages:
            return
    raise StreamStalledError(reason=f"the stream of snapshots does not take a piece: {reason}")


def _receive(connection: Connection, subject: Subject, snapshot: Snapshot) -> Iterator[bytes]:
    for place in range(snapshot.pieces):
        yield _piece(connection, SNAPSHOTS.name, _piece_subject(subject, snapshot.name, place))


def _piece(connection: Connection, stream: str, subject: str) -> bytes:
    question = {"seq": 1, "next_by_subj": subject, "batch": 1}
    for _ in range(_TRIES):
        try:
            part = list(connection.stream(f"$JS.API.DIRECT.GET.{stream}", question, _PIECE_S))
        except NodeError:
            continue
        if part:
            return part[0].body
        time.sleep(_AGAIN_S)
    raise StreamStalledError(reason=f"stream {stream} does not give {subject}")
