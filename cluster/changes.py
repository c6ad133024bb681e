"""Changes of the list of hosts, made in one order on all hosts, and what the engine does for them.

Once a cluster has formed, its list of hosts is in a stream of its own. A change appends the new
list behind the one that it has changed, so it happens only while a majority of the hosts can store
it, and two changes at the same time cannot undo each other. All functions block.
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
_NO_MEMBER = (10040, 10044)  # the codes for a server that is no member


def change(
    connection: Connection, known: Membership, make: Callable[[Membership], Membership]
) -> Membership:
    """Change the list of hosts of a cluster that has formed.

    Args:
        connection: to the engine of this host.
        known: the list as this host knows it, which counts if it was never changed since the
            cluster has formed.
        make: returns the new list for the last one. It may raise `SettingsError`.

    Returns:
        The new list.

    Raises:
        SettingsError: `make` refuses it.
        StoreError: a majority of the hosts does not store it, or another host changes it now.
    """
    streams.create(connection, streams.HOSTS, streams.REPLICAS, _CREATE_S)
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
    """Have the engines forget the one of a host that is gone, unless they have already.

    Args:
        admin: to the engine of this host, as its administrator.
        name: the host.

    Raises:
        StreamStalledError: they refuse it.
        EngineUnreachableError: they do not answer.
    """
    answer = admin.request("$JS.API.SERVER.REMOVE", {"peer": name}, _API_S)
    error = answer.get("error")
    if error and error.get("err_code") not in _NO_MEMBER:
        raise StreamStalledError(reason=f"the engines keep {name}: {error.get('description')}")


def hand_leads_over(connection: Connection, name: str) -> int:
    """Have other hosts lead the streams that a host leads; returns how many it has led.

    Raises:
        StreamStalledError: an engine refuses it.
        EngineUnreachableError: the engines do not answer.
    """
    led = [stream for stream in all_streams() if leader_of(connection, stream) == name]
    for stream in led:
        _ask(connection, f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", None)
    return len(led)


def leader_of(connection: Connection, stream: str) -> str:
    """The host that leads a stream; empty when it has no leader.

    Raises:
        EngineUnreachableError: the engines do not answer.
    """
    found = connection.request(f"$JS.API.STREAM.INFO.{stream}", None, _API_S)
    return str((found.get("cluster") or {}).get("leader", ""))


def restore_copies(connection: Connection, hosts: Collection[str]) -> int:
    """Have streams copied to another host that have lost a copy with a host that was removed.

    Args:
        connection: to the engine of this host.
        hosts: the names of all hosts, which are there.

    Returns:
        How many streams had too few copies.

    Raises:
        StreamStalledError: an engine refuses it.
        EngineUnreachableError: the engines do not answer.
    """
    few = 0
    wanted = min(streams.REPLICAS, len(hosts))
    for stream in all_streams():
        found = connection.request(f"$JS.API.STREAM.INFO.{stream}", None, _API_S)
        if found.get("error"):
            continue  # it has no leader now, or is not made yet
        replicas = (found.get("cluster") or {}).get("replicas") or ()
        kept = [each["name"] for each in replicas if each["name"] in hosts]
        if len(kept) + 1 >= wanted:
            continue
        few += 1
        for each in replicas:
            if each["name"] not in hosts:
                _ask(connection, f"$JS.API.STREAM.PEER.REMOVE.{stream}", {"peer": each["name"]})
        # The same configuration again: the engine adds the copies that it lacks.
        _ask(connection, f"$JS.API.STREAM.UPDATE.{stream}", found["config"])
    return few


def all_streams() -> list[str]:
    """The names of all streams of a cluster."""
    kinds = (streams.REGISTRY, streams.SNAPSHOTS, streams.MODULES, streams.HOSTS)
    return [stream.name for stream in (*kinds, *streams.shard_streams())]


def _ask(connection: Connection, api: str, question: object) -> dict[str, Any]:
    answer = connection.request(api, question, _API_S)
    if answer.get("error"):
        reason = answer["error"].get("description", "no reason")
        raise StreamStalledError(reason=f"the engine refuses {api}: {reason}")
    return answer
