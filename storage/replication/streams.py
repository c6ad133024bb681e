"""The streams of a cluster: their names, their configuration, and which one an owner's records
are in."""

from __future__ import annotations

import time
import zlib
from typing import Any, NamedTuple

from fieldbrook.core.errors import EngineUnreachableError, StreamStalledError
from fieldbrook.storage.replication.appends import Subject
from fieldbrook.storage.replication.connection import Connection

REPLICAS = 3
"""On how many hosts each stream is kept."""
SHARDS = 8
"""The number of streams for the records of projects. It is fixed when a cluster forms."""
_CREATE_S = 8.0
_RETRY_S = 0.2
_EXISTS = 10058  # the server's code for a stream of this name with another configuration


class Stream(NamedTuple):
    """A stream: its name and its subjects.

    `leases` begins the subjects of the hosts' leases, which keep only their last message.
    """

    name: str
    subjects: str
    leases: str = ""

    def configuration(self) -> dict[str, Any]:
        """Return the part of its configuration that says which messages it takes."""
        if not self.leases:
            return {"subjects": [self.subjects]}
        return {"subjects": [self.subjects, f"{self.leases}.>"], "allow_rollup_hdrs": True}


REGISTRY = Stream("R", "fb.registry", leases="fb.registry.lease")
SNAPSHOTS = Stream("S", "fb.s.>")
MODULES = Stream("M", "fb.m.>")
HOSTS = Stream("H", "fb.hosts")


def shard_streams() -> list[Stream]:
    """The streams with the records of projects."""
    return [Stream(f"J{shard}", f"fb.j.{shard}.*") for shard in range(SHARDS)]


def project_subject(project_id: int) -> Subject:
    """Return the subject of a project, without what is known of its records."""
    shard = zlib.crc32(str(project_id).encode()) % SHARDS
    return Subject(f"J{shard}", f"fb.j.{shard}.{project_id}")


def registry_subject() -> Subject:
    """Return the subject of the registry."""
    return Subject(REGISTRY.name, REGISTRY.subjects)


def hosts_subject() -> Subject:
    """Return the subject of the list of hosts."""
    return Subject(HOSTS.name, HOSTS.subjects)


def create(connection: Connection, stream: Stream, replicas: int, limit_s: float) -> None:
    """Create a stream, unless it exists; waits until the cluster can.

    Args:
        connection: to any host's engine.
        stream: the stream.
        replicas: on how many hosts it is kept.
        limit_s: how long to wait.

    Raises:
        StreamStalledError: it could not be created in time.
    """
    # Nothing vanishes by age or size, and an append to a full stream is refused.
    configuration: dict[str, Any] = {
        "name": stream.name,
        **stream.configuration(),
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "num_replicas": replicas,
        "allow_direct": True,
        "deny_delete": True,
    }
    deadline = time.monotonic() + limit_s
    while True:
        try:
            subject = f"$JS.API.STREAM.CREATE.{stream.name}"
            answer = connection.request(subject, configuration, _CREATE_S)
            error = answer.get("error")
            if error is None or error.get("err_code") == _EXISTS:
                return
            reason = str(error.get("description"))
        except EngineUnreachableError as failed:
            reason = str(failed)
        if time.monotonic() > deadline:
            raise StreamStalledError(reason=f"stream {stream.name} cannot be created: {reason}")
        time.sleep(_RETRY_S)
