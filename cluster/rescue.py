"""Rescue: turns the last host of a cluster into a single node, after the majority is lost for good.

The streams of the host are copied, and a replication engine without peers serves the copy. The
registry and the stores of all projects get the records that they lack from the copy. Then the data
folder is removed from the cluster. If the work fails before that last step, the folder still
belongs to a host of the cluster.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from fieldbrook.actors.worker.journal import open_store
from fieldbrook.cluster import engine_files, hosts_file
from fieldbrook.cluster.engine import Address, Engine
from fieldbrook.core import clock
from fieldbrook.core.errors import (
    JournalDamagedError,
    NodeError,
    SettingsError,
    StoreError,
    StreamStalledError,
)
from fieldbrook.core.settings import Settings
from fieldbrook.security.node_secrets import load_or_create_key
from fieldbrook.storage import data_lock
from fieldbrook.storage.journal.unapplied import apply_records
from fieldbrook.storage.project.store import store_path
from fieldbrook.storage.project.stored import stored_number
from fieldbrook.storage.registry.reader import RegistryReader
from fieldbrook.storage.registry.writer import RegistryWriter
from fieldbrook.storage.replication import snapshots
from fieldbrook.storage.replication.appends import Subject
from fieldbrook.storage.replication.connection import Connection
from fieldbrook.storage.replication.marks import remove_mark
from fieldbrook.storage.replication.records import Entry, Kind
from fieldbrook.storage.replication.streams import (
    REGISTRY,
    Stream,
    project_subject,
    registry_subject,
    shard_streams,
)
from fieldbrook.storage.replication.takeover import last, read_unchecked
from fieldbrook.system.fsync import sync_folder

_COPY = "rescue"  # folder of the replication engine that serves the copy
_SPARE_BYTES = 1 << 30  # free space that this engine may need to write
_REQUEST_S = 5.0
_STREAMS = (REGISTRY, *shard_streams())


class _State(msgspec.Struct):
    """The part of a stream's state that a rescue reports: when its last record was stored."""

    last_ts: str


class RescuedProject(NamedTuple):
    """A project in the data folder after the rescue.

    Attributes:
        name: the name of the project.
        batch: the number of the last batch in the project's store.
        batches: the number of batches that the rescue has added to the store.
        damage: why later batches could not be read from this host's streams; empty if all were
            read.
    """

    name: str
    batch: int
    batches: int
    damage: str


class Rescued(NamedTuple):
    """The result of a rescue.

    Attributes:
        hosts: the names of the other hosts, whose data is lost.
        last_at: when the last record that this host has was appended, as UTC (RFC 3339). Each host
            appends one record per second.
        projects: all projects, sorted by name.
        registry_damage: why later changes of accounts and projects could not be read; empty if all
            were read.
        missing: digests of modules that this host does not have.
        kept: the folder to which the streams and the list of hosts were moved; the node does not
            need them any more.
    """

    hosts: tuple[str, ...]
    last_at: str
    projects: list[RescuedProject]
    registry_damage: str
    missing: list[str]
    kept: Path


def require_rescuable(data: Path) -> None:
    """Refuse a data folder that cannot be rescued, before anybody is asked about it.

    Raises:
        SettingsError: a node runs on the folder, or it belongs to no cluster.
    """
    hosts_file.require_formed(data)
    if data_lock.is_held(data):
        raise SettingsError(reason=f"another node runs on the data folder {data}")


def rescue(settings: Settings) -> Rescued:
    """Turn the data folder of a cluster's host into the data folder of a single node.

    Args:
        settings: the settings of the node.

    Raises:
        SettingsError: a node is running on the folder, the folder belongs to no cluster, or
            nats-server is not installed.
        StoreError: a store or the streams cannot be read or written, or the disk is full.
        EngineUnreachableError: nats-server does not start on the copy.
    """
    data = settings.data
    known = hosts_file.require_formed(data)
    locks = data_lock.acquire_data_lock(data), data_lock.acquire_node_lock(data)
    folder = data / hosts_file.FOLDER
    copy = folder / _COPY
    try:
        size = _copy_streams(folder / "engine" / "streams", copy)
        engine = Engine(
            *(copy, known.me, known.cluster, Address("127.0.0.1", 0)),
            others=(),
            tls=None,
            file_bytes=size + _SPARE_BYTES,
        )
        endpoint = engine.start()
        connection = Connection(lambda: endpoint, _COPY)
        try:
            states = {stream.name: _state(connection, stream) for stream in _STREAMS}
            files = _files(folder / "engine" / "streams")
            projects, missing = _bring_up_to_date(settings, connection, known.me, files)
        finally:
            connection.close()
            engine.stop()
        shutil.rmtree(copy)
        kept = data / time.strftime(f"{hosts_file.FOLDER}.rescued-%Y%m%dT%H%M%SZ", time.gmtime())
        folder.rename(kept)
        sync_folder(data)
    except OSError as error:
        raise StoreError(reason=f"{folder}: {error}") from error
    finally:
        for lock in locks:
            os.close(lock)
    return Rescued(
        hosts=tuple(host.name for host in known.others),
        last_at=max(state.last_ts for state in states.values()),
        projects=projects,
        registry_damage=files.damage.get(REGISTRY.name, ""),
        missing=missing,
        kept=kept,
    )


def _copy_streams(streams: Path, copy: Path) -> int:
    """Copy the streams for an engine without peers; return their size in bytes."""
    shutil.rmtree(copy, ignore_errors=True)  # left by an interrupted rescue
    size = sum(path.stat().st_size for path in streams.rglob("*") if path.is_file())
    free = shutil.disk_usage(streams).free
    if free < size:
        raise StoreError(reason=f"a copy of {streams} takes {size} bytes, and {free} are free")
    copy.mkdir(mode=0o700)
    shutil.copytree(streams, copy / "streams")
    if not engine_files.make_single(copy / "streams"):
        raise StoreError(reason=f"{streams} has no streams")
    return size


def _state(connection: Connection, stream: Stream) -> _State:
    answer = connection.request(f"$JS.API.STREAM.INFO.{stream.name}", {}, _REQUEST_S)
    try:
        return msgspec.convert(answer.get("state"), _State)
    except msgspec.ValidationError as error:
        reason = f"the engine cannot read the stream {stream.name}: {answer.get('error') or error}"
        raise StoreError(reason=reason) from error


class _Files(NamedTuple):
    """The result of scanning the files of the streams.

    Attributes:
        damage: why the files of a stream cannot be read to the end, by stream.
        last: the position of the last record of a subject, by subject.
    """

    damage: dict[str, str]
    last: dict[bytes, int]


def _files(streams: Path) -> _Files:
    files = _Files({}, {})
    for stream in _STREAMS:
        try:
            (folder,) = streams.glob(f"jetstream/*/streams/{stream.name}")
            files.last.update(engine_files.last_records(folder))
        except JournalDamagedError as error:
            files.damage[stream.name] = str(error)
    return files


def _bring_up_to_date(
    settings: Settings, connection: Connection, host: str, files: _Files
) -> tuple[list[RescuedProject], list[str]]:
    """Add the missing changes, modules and batches to the data folder; see `Rescued`.

    If the stream of the registry cannot be read to its end, the reason is added to `files.damage`.
    """
    data = settings.data
    writer = RegistryWriter(
        data / "registry",
        settings.registry_map_bytes,
        clock.now_ms,
        load_or_create_key(data / "secrets", "token.key"),
        settings.audit_rows,
    )
    try:
        replica = writer.replicate(connection, host)
        try:
            found = _last(connection, registry_subject(), files)
            if found.damage:
                files.damage.setdefault(REGISTRY.name, found.damage)
            replica.repeat(_records(connection, registry_subject(), found.position))
        except (JournalDamagedError, StreamStalledError) as error:
            files.damage.setdefault(REGISTRY.name, str(error))
        reader = writer.reader()
        missing = _add_modules(connection, reader, data / "modules")
        projects = [
            _bring_project(settings, connection, project.project_id, project.name, files)
            for project in sorted(reader.projects(), key=lambda one: one.name)
        ]
        replica.leave()
    finally:
        writer.close()
    return projects, missing


def _add_modules(connection: Connection, reader: RegistryReader, folder: Path) -> list[str]:
    """Load the modules that the folder lacks; return the digests of those that the streams lack as
    well."""
    missing = []
    for sha256 in sorted({resource.sha256 for resource in reader.resources()}):
        path = folder / f"{sha256}.wasm"
        if path.exists():
            continue
        try:
            snapshots.download_module(connection, sha256, path)
        except NodeError:
            missing.append(sha256)
    return missing


def _bring_project(
    settings: Settings, connection: Connection, project_id: int, name: str, files: _Files
) -> RescuedProject:
    projects = settings.data / "projects"
    folder = store_path(projects, project_id)
    before = stored_number(folder)
    subject = project_subject(project_id)
    damage = files.damage.get(subject.stream, "")
    try:
        found = _last(connection, subject, files)
        damage = damage or found.damage
        # A project without a batch may have a snapshot nevertheless, with its SQL tables.
        if found.position and (found.damage or found.number > before or not before):
            records = list[tuple[int, Entry]]()
            try:
                for record in _records(connection, subject, found.position):
                    records.append(record)
            except NodeError as error:
                damage = damage or str(error)
            number = _last_complete(records, before)
            if number < found.number:
                damage = damage or f"batch {number + 1} is missing"
            records = [record for record in records if record[1].number <= number]
            todo = snapshots.plan(project_id, records, before, number)
            if todo.snapshot is not None:
                snapshots.download(connection, subject, todo.snapshot, folder)
            store = open_store(settings, projects, project_id)
            try:
                apply_records(store, todo.batches)
            finally:
                store.close()
    except NodeError as error:
        damage = str(error)
    number = stored_number(folder)
    remove_mark(folder)
    return RescuedProject(name, number, number - before, damage)


class _Last(NamedTuple):
    """The last record of a subject: its position, the number of its batch, and its damage."""

    position: int
    number: int
    damage: str


def _last(connection: Connection, subject: Subject, files: _Files) -> _Last:
    """Read the last record of a subject through the engine, and compare it with the files.

    If the last record of a subject is damaged and the index is intact, the engine reports that the
    subject has no record.

    Raises:
        JournalDamagedError: the record is damaged.
        StreamStalledError: the engine does not answer.
    """
    found = last(connection, subject)
    position, number = (found[0], found[1].number) if found is not None else (0, 0)
    known = files.last.get(subject.name.encode(), 0)
    if known <= position:
        return _Last(position, number, "")
    damage = f"{subject.name}: the engine cannot read the last record, which is {known}"
    return _Last(position or known, number, damage)


def _records(connection: Connection, subject: Subject, upto: int) -> Iterator[tuple[int, Entry]]:
    """Iterate over the records of a subject up to a position.

    If its index is intact, the engine skips single records whose bytes are damaged. The caller
    detects the gap by the numbers of batches.
    """
    return read_unchecked(connection, subject, 0, upto, time.monotonic)


def _last_complete(records: Sequence[tuple[int, Entry]], stored: int) -> int:
    """Return the number of the last batch up to which no batch is missing."""
    numbers = {entry.number for _, entry in records if entry.kind is Kind.BATCH}
    if not numbers or min(numbers) > stored + 1:
        taken = [entry.number for _, entry in records if entry.kind is Kind.SNAPSHOT]
        stored = max([stored, *taken])
    while stored + 1 in numbers:
        stored += 1
    return stored
