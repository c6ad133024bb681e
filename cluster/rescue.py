"""Makes a single node of the last host of a cluster, when the majority is lost for good.

The streams of the host are copied, and an engine that is alone serves the copy. From there the
registry and the stores of all projects get what they lack. Then the data folder belongs to no
cluster any more. Until that last step it is the folder of a host, however the work ends.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from fieldbrook.actors.worker.journal import open_store
from fieldbrook.cluster import engine_files, hosts_file
from fieldbrook.cluster.engine import Address, Engine
from fieldbrook.core import clock
from fieldbrook.core.errors import JournalDamagedError, NodeError, SettingsError, StoreError
from fieldbrook.core.settings import Settings
from fieldbrook.security.node_secrets import load_or_create_key
from fieldbrook.storage import data_lock
from fieldbrook.storage.journal.unapplied import apply_records
from fieldbrook.storage.project.store import store_path
from fieldbrook.storage.project.stored import stored_number
from fieldbrook.storage.registry.reader import RegistryReader
from fieldbrook.storage.registry.writer import RegistryWriter
from fieldbrook.storage.replication import snapshots
from fieldbrook.storage.replication.connection import Connection
from fieldbrook.storage.replication.marks import remove_mark
from fieldbrook.storage.replication.streams import (
    REGISTRY,
    Stream,
    project_subject,
    shard_streams,
)
from fieldbrook.storage.replication.takeover import last, read
from fieldbrook.system.fsync import sync_folder

_COPY = "rescue"  # folder of the engine that serves the copy
_SPARE_BYTES = 1 << 30  # that this engine may write
_REQUEST_S = 5.0
_STREAMS = (REGISTRY, *shard_streams())


class _State(msgspec.Struct):
    """The part of a stream's state that matters here: its last record, and when it was stored."""

    last_seq: int
    last_ts: str


class RescuedProject(NamedTuple):
    """A project that the data folder has now.

    Attributes:
        name: its name.
        batch: the number of the last batch in its store.
        batches: how many of them the store lacked before.
        damage: why later batches of this host could not be read; empty if there are none.
    """

    name: str
    batch: int
    batches: int
    damage: str


class Rescued(NamedTuple):
    """The result of a rescue.

    Attributes:
        hosts: the names of the other hosts, whose data is lost.
        last_at: when a host appended the last record that this host has, as UTC (RFC 3339). The
            hosts append one each second.
        projects: all projects, by their names.
        registry_damage: why later changes of accounts and projects could not be read.
        missing: digests of modules that this host does not have.
        kept: the folder with the streams and the list of hosts, which are not needed any more.
    """

    hosts: tuple[str, ...]
    last_at: str
    projects: list[RescuedProject]
    registry_damage: str
    missing: list[str]
    kept: Path


def rescue(settings: Settings) -> Rescued:
    """Make a single node of a data folder.

    Args:
        settings: those of the node.

    Raises:
        SettingsError: a node runs on the folder, it belongs to no cluster, or the engine is not
            installed.
        StoreError: a store or the streams cannot be read or written, or the disk is full.
        EngineUnreachableError: the engine does not start on the copy.
    """
    data = settings.data
    known = hosts_file.load(data)
    if known is None or not known.formed:
        raise SettingsError(reason=f"the data folder {data} is not that of a host of a cluster")
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
            damage = _damage(folder / "engine" / "streams", states)
            projects, missing = _bring_up_to_date(settings, connection, known.me, damage)
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
        registry_damage=damage.get(REGISTRY.name, ""),
        missing=missing,
        kept=kept,
    )


def _copy_streams(streams: Path, copy: Path) -> int:
    """Copy the streams for an engine that is alone; return their size in bytes."""
    shutil.rmtree(copy, ignore_errors=True)  # of a rescue that was interrupted
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


def _damage(streams: Path, states: Mapping[str, _State]) -> dict[str, str]:
    """Return by stream what its files have and the engine has left out, because of damage."""
    found = {}
    for name, state in states.items():
        try:
            (folder,) = streams.glob(f"jetstream/*/streams/{name}")
            number = engine_files.last_sequence(folder)
        except JournalDamagedError as error:
            found[name] = str(error)
        else:
            if number > state.last_seq:
                found[name] = (
                    f"{folder} is damaged: the engine reads up to record {state.last_seq} of "
                    f"{number}"
                )
    return found


def _bring_up_to_date(
    settings: Settings, connection: Connection, host: str, damage: dict[str, str]
) -> tuple[list[RescuedProject], list[str]]:
    """Add what the registry, the modules and the stores lack; see `Rescued`.

    What cannot be read of the registry's stream is added to `damage`.
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
            replica.catch_up()
        except JournalDamagedError as error:
            damage.setdefault(REGISTRY.name, str(error))
        reader = writer.reader()
        missing = _add_modules(connection, reader, data / "modules")
        projects = [
            _bring_project(settings, connection, project.project_id, project.name, damage)
            for project in sorted(reader.projects(), key=lambda one: one.name)
        ]
        replica.leave()
    finally:
        writer.close()
    return projects, missing


def _add_modules(connection: Connection, reader: RegistryReader, folder: Path) -> list[str]:
    """Load the modules that the folder lacks; return the digests of those that are nowhere."""
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
    settings: Settings,
    connection: Connection,
    project_id: int,
    name: str,
    damage_of: Mapping[str, str],
) -> RescuedProject:
    projects = settings.data / "projects"
    folder = store_path(projects, project_id)
    before = number = stored_number(folder)
    subject = project_subject(project_id)
    damage = damage_of.get(subject.stream, "")
    try:
        found = last(connection, subject)
        if found is not None and found[1].number > before:
            records = list(read(connection, subject, 0, found[0]))
            todo = snapshots.plan(project_id, records, before, found[1].number)
            if todo.snapshot is not None:
                snapshots.download(connection, subject, todo.snapshot, folder)
            store = open_store(settings, projects, project_id)
            try:
                apply_records(store, todo.batches)
            finally:
                store.close()
            number = stored_number(folder)
    except NodeError as error:
        damage, number = str(error), stored_number(folder)
    remove_mark(folder)
    return RescuedProject(name, number, number - before, damage)
