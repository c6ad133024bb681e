"""Changes of the list of hosts, in one order on all hosts; requests to the replication engine.

A cluster that has formed keeps its list of hosts in a stream. A change appends a new list, and
names the position of the list that it is based on. Therefore a change needs a majority of the hosts
(a quorum). If two hosts make a change at the same time, one change is refused. All functions block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from fieldbrook.core.cluster.membership import Membership
from fieldbrook.core.errors import StreamStalledError
from fieldbrook.storage.replication import streams
from fieldbrook.storage.replication.connection import Connection
from fieldbrook.storage.replication.records import Kind
from fieldbrook.storage.replication.takeover import carry_out, take_over

_CREATE_S = 10.0
_API_S = 5.0
_NO_MEMBER = (10040, 10044)  # JetStream's error codes for a server that is not in the cluster


def change(
    connection: Connection, known: Membership, make: Callable[[Membership], Membership]
) -> Membership:
    """Change the list of hosts of a cluster that has formed.

    Args:
        connection: a connection to the replication engine of this host.
        known: this host's copy of the list. It is used if the stream is empty, i.e. if the list
            was never changed since the cluster formed.
        make: returns the new list, given the current one. It may raise `SettingsError`.

    Returns:
        The new list.

    Raises:
        SettingsError: `make` has raised it.
        StoreError: no majority of the hosts stores the list, or another host is changing it.
    """
    streams.create(connection, [streams.HOSTS], streams.REPLICAS, _CREATE_S)
    taken = take_over(connection, streams.hosts_subject(), known.me)
    last = known
    for _, entry in taken.records:
        if entry.kind is Kind.BATCH:
            last = msgspec.json.decode(entry.body, type=Membership)
    made = make(last)
    if made == last:
        return msgspec.structs.replace(last, me=known.me)
    made = msgspec.structs.replace(made, me=known.me, version=taken.number + 1)
    append = taken.owner.append(
        Kind.BATCH, made.version, msgspec.json.encode(made), time.monotonic()
    )
    carry_out(connection, append)
    return made


def remove_engine(admin: Connection, name: str) -> None:
    """Remove the engine of a removed host from the cluster of replication engines, if it is still a
    member.

    Args:
        admin: an administrator's connection to the replication engine of this host.
        name: the name of the removed host.

    Raises:
        StreamStalledError: the engines refuse the removal.
        EngineUnreachableError: the engines do not answer.
    """
    answer = admin.request("$JS.API.SERVER.REMOVE", {"peer": name}, _API_S)
    error = answer.get("error")
    if error and error.get("err_code") not in _NO_MEMBER:
        raise StreamStalledError(
            reason=f"the replication engines do not remove {name}: {error.get('description')}"
        )


def transfer_leadership(connection: Connection, name: str) -> int:
    """Transfer the leadership of all streams that a host leads; return the number of these streams.

    Raises:
        StreamStalledError: an engine refuses it.
        EngineUnreachableError: the engines do not answer.
    """
    led = [stream for stream in all_streams() if leader_of(connection, stream) == name]
    for stream in led:
        _ask(connection, f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", None)
    return len(led)


def leader_of(connection: Connection, stream: str) -> str:
    """Return the host that leads a stream; an empty text if the stream has no leader.

    Raises:
        EngineUnreachableError: the engines do not answer.
    """
    found = connection.request(f"$JS.API.STREAM.INFO.{stream}", None, _API_S)
    return str((found.get("cluster") or {}).get("leader", ""))


def restore_replicas(connection: Connection, hosts: Collection[str]) -> int:
    """Replace the replicas of streams that were lost with a removed host.

    Args:
        connection: a connection to the replication engine of this host.
        hosts: the names of all hosts. All of them must be up.

    Returns:
        The number of streams that had too few replicas.

    Raises:
        StreamStalledError: an engine refuses it.
        EngineUnreachableError: the engines do not answer.
    """
    few = 0
    wanted = min(streams.REPLICAS, len(hosts))
    for stream in all_streams():
        found = connection.request(f"$JS.API.STREAM.INFO.{stream}", None, _API_S)
        if found.get("error"):
            continue  # the stream has no leader at the moment, or does not exist yet
        replicas = (found.get("cluster") or {}).get("replicas") or ()
        kept = [each["name"] for each in replicas if each["name"] in hosts]
        if len(kept) + 1 >= wanted:
            continue
        few += 1
        for each in replicas:
            if each["name"] not in hosts:
                _ask(connection, f"$JS.API.STREAM.PEER.REMOVE.{stream}", {"peer": each["name"]})
        # An update that changes nothing makes nats-server add the missing replicas.
        _ask(connection, f"$JS.API.STREAM.UPDATE.{stream}", found["config"])
    return few


def all_streams() -> list[str]:
    """Return the names of all streams of a cluster."""
    kinds = (streams.REGISTRY, streams.SNAPSHOTS, streams.MODULES, streams.HOSTS)
    return [stream.name for stream in (*kinds, *streams.shard_streams())]


def _ask(connection: Connection, api: str, question: object) -> dict[str, Any]:
    answer = connection.request(api, question, _API_S)
    if answer.get("error"):
        reason = answer["error"].get("description", "no reason")
        raise StreamStalledError(reason=f"nats-server refuses {api}: {reason}")
    return answer
