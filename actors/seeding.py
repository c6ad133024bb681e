"""Seeding of a new cluster: copies the data of the founding host into the streams."""

from __future__ import annotations

import logging
import tempfile
import time
from pathlib import Path

from fieldbrook.actors.worker.journal import open_journal, open_store
from fieldbrook.core.settings import Settings
from fieldbrook.storage.lmdb.environment import open_environment, store_errors
from fieldbrook.storage.project.store import store_path
from fieldbrook.storage.project.stored import stored_number
from fieldbrook.storage.registry.service import RegistryReader, RegistryWriter
from fieldbrook.storage.replication import snapshots, streams
from fieldbrook.storage.replication.connection import Connection
from fieldbrook.storage.replication.records import Kind
from fieldbrook.storage.replication.takeover import carry_out, take_over
from fieldbrook.storage.sql.sqlite import files as sql

log = logging.getLogger(__name__)

_STREAM_S = 20.0


def create_streams(connection: Connection) -> None:
    """Create the streams of the cluster, unless they exist.

    Raises:
        StreamStalledError: the hosts have no quorum.
    """
    kinds = (streams.REGISTRY, streams.SNAPSHOTS, streams.MODULES, streams.HOSTS)
    wanted = [*kinds, *streams.shard_streams()]
    streams.create(connection, wanted, streams.REPLICAS, _STREAM_S)


def seed(settings: Settings, writer: RegistryWriter, connection: Connection, host: str) -> None:
    """Put all stores of this host, and then its registry, into the streams.

    Other hosts wait for the registry, so none of them takes a project over before the project's
    store is in the stream. After a crash, call it again.

    Args:
        settings: the settings of the node.
        writer: the registry, in replicated mode.
        connection: to the replication engine of this host.
        host: the name of this host.

    Raises:
        StoreError: a store cannot be read, or a stream does not take it.
    """
    reader = writer.reader()
    journal, _ = open_journal(settings, reader, "0", is_boot=True)
    journal.close()
    count = 0
    for project in reader.projects():
        count += _seed_project(settings, connection, host, project.project_id)
    _seed_modules(connection, reader, settings.data / "modules")
    assert writer.replica is not None
    writer.replica.seed()
    log.warning("the stores of %d projects were copied to all hosts", count)


def _seed_project(settings: Settings, connection: Connection, host: str, project_id: int) -> bool:
    folder = store_path(settings.data / "projects", project_id)
    if sql.is_initialized(folder / sql.FILE):
        # A batch that waits for the decision of the SQL database gets it, and a number.
        open_store(settings, folder.parent, project_id).close()
    return put_store(connection, host, project_id, folder, settings.data / "uploads")


def put_store(
    connection: Connection, host: str, project_id: int, folder: Path, scratch: Path
) -> bool:
    """Put the closed store of a project that no host owns yet into the streams.

    Args:
        connection: to the replication engine of this host.
        host: the name of this host.
        project_id: the project.
        folder: the folder of its store.
        scratch: a folder for a temporary copy.

    Returns:
        False when there is nothing to put, or when the streams have it already.

    Raises:
        StoreError: the store cannot be read, or a stream does not take it.
    """
    number, database = stored_number(folder), folder / sql.FILE
    if not (number or sql.is_initialized(database)):
        return False
    taken = take_over(connection, streams.project_subject(project_id), host)
    if any(entry.kind is Kind.SNAPSHOT and entry.number >= number for _, entry in taken.records):
        return False
    with tempfile.TemporaryDirectory(dir=scratch) as copy:
        environment = open_environment(folder, map_size=0, readonly=True)
        try:
            with store_errors(folder):
                environment.copy(copy, compact=True)
        finally:
            environment.close()
        sql.copy(database, Path(copy) / sql.FILE)
        made = snapshots.upload(connection, taken.owner.subject, Path(copy))
    for kind, body in ((Kind.SNAPSHOT, snapshots.encode(made)), (Kind.RELEASE, b"")):
        carry_out(connection, taken.owner.append(kind, number, body, time.monotonic()))
    return True


def _seed_modules(connection: Connection, reader: RegistryReader, folder: Path) -> None:
    for sha256 in sorted({resource.sha256 for resource in reader.resources()}):
        path = folder / f"{sha256}.wasm"
        if path.exists():
            snapshots.upload_module(connection, sha256, path)
