"""Records in the registry's stream that show that a host reaches a majority of the hosts.

A lease record is a message without a body, and replaces the host's previous lease record. A replica
that has a lease record also has all changes that the stream stored before it.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from fieldbrook.core.errors import EngineUnreachableError, StreamStalledError
from fieldbrook.storage.replication.connection import Connection, Outgoing
from fieldbrook.storage.replication.parser import Message
from fieldbrook.storage.replication.streams import REGISTRY

_NEW_ONE = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"
_STORE_S = 1.0
_READ_S = 0.2
_RETRY_S = 0.05


class _Error(msgspec.Struct, frozen=True):
    description: str = ""


class _Stored(msgspec.Struct, frozen=True):
    """The answer of a stream to a lease record."""

    seq: int = 0
    error: _Error = _Error()


class Renewed(NamedTuple):
    """A record of a lease that the stream has stored.

    Attributes:
        position: the position of the lease record.
        registry: the position of the registry's last change, 0 if there is none. All changes that
            were stored before the lease record are at this position or before it.
    """

    position: int
    registry: int


def renew(connection: Connection, host: str) -> Renewed:
    """Store a lease record of this host, and look up the last change of the registry.

    Raises:
        EngineUnreachableError: the replication engine of this host does not answer.
        StreamStalledError: the stream does not store the lease record, or no replica has it in
            time.
    """
    position = _store(connection, host)
    deadline = time.monotonic() + _STORE_S
    while True:
        found = _last(connection, REGISTRY.subjects, _subject(host)) or {}
        # A replica that lacks the record may lack changes before it, too.
        if found.get(_subject(host), 0) >= position:
            return Renewed(position, found.get(REGISTRY.subjects, 0))
        if time.monotonic() > deadline:
            raise StreamStalledError(reason=f"no replica of stream {REGISTRY.name} has the lease")
        time.sleep(_RETRY_S)


def positions(connection: Connection, after: int) -> dict[str, int] | None:
    """Return the position of each host's last lease record, by the name of the host.

    Args:
        connection: to the replication engine of this host.
        after: the position of a change of the registry; the replica must have this change.

    Returns:
        None if the replica that answers lacks that change, or if no replica answers.

    Raises:
        EngineUnreachableError: the replication engine of this host does not answer.
    """
    found = _last(connection, f"{REGISTRY.leases}.>", REGISTRY.subjects)
    if found is None or found.pop(REGISTRY.subjects, 0) < after:
        return None
    return {name.removeprefix(f"{REGISTRY.leases}."): at for name, at in found.items()}


def _subject(host: str) -> str:
    return f"{REGISTRY.leases}.{host}"


def _store(connection: Connection, host: str) -> int:
    message = Outgoing(_subject(host), _NEW_ONE, b"")
    (answer,) = connection.ask_many([message], _STORE_S)
    if answer is not None and answer.status:
        # No stream has the subject, because an earlier version has made the stream.
        _allow(connection)
        (answer,) = connection.ask_many([message], _STORE_S)
    stored = _position(answer)
    if isinstance(stored, str):
        raise StreamStalledError(reason=f"stream {REGISTRY.name} does not store a lease: {stored}")
    return stored


def _position(answer: Message | None) -> int | str:
    """Return the position of a stored record, or the reason why it was not stored."""
    if answer is None or answer.status:
        return "no answer in time"
    try:
        stored = msgspec.json.decode(answer.body, type=_Stored)
    except msgspec.MsgspecError:
        return "the answer is damaged"
    if stored.seq <= 0:
        return stored.error.description or "the answer has no position"
    return stored.seq


def _allow(connection: Connection) -> None:
    """Add the subjects of leases to the stream."""
    found = connection.request(f"$JS.API.STREAM.INFO.{REGISTRY.name}", None, _STORE_S)
    if "config" in found:
        wanted = {**found["config"], **REGISTRY.configuration()}
        connection.request(f"$JS.API.STREAM.UPDATE.{REGISTRY.name}", wanted, _STORE_S)


def _last(connection: Connection, *subjects: str) -> dict[str, int] | None:
    """Return the positions of the last messages of subjects, from one replica at one time.

    None if the replica is disconnected or was stopped, or if a header is damaged.
    """
    found: dict[str, int] = {}
    question = {"multi_last": subjects}
    try:
        for message in connection.stream(f"$JS.API.DIRECT.GET.{REGISTRY.name}", question, _READ_S):
            name = message.header(b"Nats-Subject").decode()
            found[name] = int(message.header(b"Nats-Sequence"))
    except (EngineUnreachableError, ValueError):
        return None
    return found
