"""The streams of a cluster: names, configuration, and which stream has the records of a project."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from fieldbrook.core.errors import EngineUnreachableError, StreamStalledError
from fieldbrook.storage.replication.appends import Subject
from fieldbrook.storage.replication.connection import Connection, Outgoing
from fieldbrook.storage.replication.parser import Message

REPLICAS = 3
"""The number of hosts that have a replica of each stream."""
SHARDS = 8
"""The number of streams for the records of projects. It is fixed when a cluster forms."""
# Replication engines that have not elected a leader yet drop such requests without an answer.
_CREATE_S = 1.0
_RETRY_S = 0.2
_EXISTS = 10058  # the server's code for a stream of this name with another configuration


class _Error(msgspec.Struct, frozen=True):
    err_code: int = 0
    description: str = ""


class _Created(msgspec.Struct, frozen=True):
    """The answer to a request to create a stream."""

    error: _Error | None = None


class Stream(NamedTuple):
    """A stream: its name and its subjects.

    `leases` is the prefix of the subjects of leases; the stream keeps only the last message of each
    of them.
    """

    name: str
    subjects: str
    leases: str = ""

    def configuration(self) -> dict[str, Any]:
        """Return the part of its configuration that says which messages it stores."""
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
    """Return the subject of a project; position and term of its last record are not set."""
    shard = zlib.crc32(str(project_id).encode()) % SHARDS
    return Subject(f"J{shard}", f"fb.j.{shard}.{project_id}")


def registry_subject() -> Subject:
    """Return the subject of the registry."""
    return Subject(REGISTRY.name, REGISTRY.subjects)


def hosts_subject() -> Subject:
    """Return the subject of the list of hosts."""
    return Subject(HOSTS.name, HOSTS.subjects)


def create(connection: Connection, wanted: Iterable[Stream], replicas: int, limit_s: float) -> None:
    """Create streams, unless they exist; wait until the cluster is able to.

    Args:
        connection: to the replication engine of any host.
        wanted: the streams.
        replicas: the number of replicas of each stream.
        limit_s: how long to wait.

    Raises:
        StreamStalledError: a stream could not be created in time.
    """
    deadline = time.monotonic() + limit_s
    left = list(wanted)
    while True:
        requests = [_creation(stream, replicas) for stream in left]
        try:
            answers = connection.ask_many(requests, _CREATE_S)
        except EngineUnreachableError as error:
            reasons = [str(error)] * len(left)
        else:
            reasons = [_why_not_created(answer) for answer in answers]
        failed = [pair for pair in zip(left, reasons, strict=True) if pair[1]]
        if not failed:
            return
        left = [stream for stream, _ in failed]
        if time.monotonic() > deadline:
            name, reason = left[0].name, failed[0][1]
            raise StreamStalledError(reason=f"stream {name} cannot be created: {reason}")
        time.sleep(_RETRY_S)


def _creation(stream: Stream, replicas: int) -> Outgoing:
    # The stream removes no message because of its age or its own size; it refuses appends when it
    # is full.
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
    return Outgoing(f"$JS.API.STREAM.CREATE.{stream.name}", b"", json.dumps(configuration).encode())


def _why_not_created(answer: Message | None) -> str:
    """Return an empty text if the answer says that a stream exists now."""
    if answer is None or answer.status:
        return "no answer"
    try:
        error = msgspec.json.decode(answer.body, type=_Created).error
    except msgspec.MsgspecError:
        return "the answer is damaged"
    return "" if error is None or error.err_code == _EXISTS else error.description or "an error"
