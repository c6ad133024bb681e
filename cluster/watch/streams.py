"""Reads the state of the streams from the monitoring of this host's replication engine."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from fieldbrook.core.errors import EngineUnreachableError

T = TypeVar("T")

BEHIND_RECORDS = 1_000
"""A replica that lacks more records than this counts as behind."""
BEHIND_S = 5.0
"""A replica from which its leader has got no message for this time counts as behind."""
_LIMIT_S = 2.0
_PAGE = "jsz?accounts=true&streams=true&config=true"
_GROUPS_PAGE = "raftz?acc=NODE"
# A replica that lacks at most so many committed records has caught up: under load it always lacks
# some.
_LATE_RECORDS = 100


class Streams(NamedTuple):
    """The streams of this host.

    Attributes:
        held: the number of streams of which this host has a replica.
        led: the number of streams that this host leads.
        at_risk: how many of the led streams lose their quorum if one more replica is lost.
        stalled: the number of held streams that have no leader.
        lags: by host: how many records its replicas of the led streams lack.
        behind: hosts with a replica that is behind.
        used_bytes: the disk space of all replicas on this host.
        limit_bytes: the limit of this disk space.
    """

    held: int = 0
    led: int = 0
    at_risk: int = 0
    stalled: int = 0
    lags: dict[str, int] = {}  # noqa: RUF012 - never changed
    behind: tuple[str, ...] = ()
    used_bytes: int = 0
    limit_bytes: int = 0


class _Replica(msgspec.Struct, frozen=True):
    name: str
    current: bool = True
    offline: bool = False
    active: int = 0  # nanoseconds since its leader got a message from it; 0 if it got none
    lag: int = 0


class _Group(msgspec.Struct, frozen=True):
    raft_group: str = ""
    leader: str = ""
    replicas: list[_Replica] = []


class _Stream(msgspec.Struct, frozen=True):
    name: str
    cluster: _Group | None = None


class _Account(msgspec.Struct, frozen=True):
    stream_detail: list[_Stream] = []


class _Copy(msgspec.Struct, frozen=True):
    """A replica in the Raft group of its stream, as nats-server reports it."""

    leader: str = ""
    catching_up: bool = False
    committed: int = 0
    applied: int = 0


class _Config(msgspec.Struct, frozen=True):
    max_storage: int = 0


class _Page(msgspec.Struct, frozen=True):
    config: _Config = _Config()
    storage: int = 0
    account_details: list[_Account] = []


def read_streams(folder: Path, me: str) -> Streams:
    """Request the state of the streams from the engine that runs in a folder.

    This blocks for some milliseconds, and for `_LIMIT_S` at most.

    Raises:
        EngineUnreachableError: the engine does not answer.
    """
    return _read(folder, _PAGE, lambda page: read_page(page, me))


def has_caught_up(folder: Path) -> bool:
    """Return whether all streams of the engine in a folder have leaders, and its replicas caught
    up.

    This blocks like `read_streams`.

    Raises:
        EngineUnreachableError: the engine does not answer.
    """
    return _read(folder, _GROUPS_PAGE, are_caught_up)


def _read(folder: Path, page: str, decode: Callable[[bytes], T]) -> T:
    try:
        (ports,) = folder.glob("*.ports")  # a new engine removes the file of the previous one
        (address, *_) = json.loads(ports.read_bytes())["monitoring"]
        with urllib.request.urlopen(f"{address}/{page}", timeout=_LIMIT_S) as answer:  # noqa: S310
            return decode(answer.read())
    except (OSError, LookupError, ValueError, msgspec.MsgspecError) as error:
        raise EngineUnreachableError(
            reason=f"nats-server's monitoring does not answer: {error}"
        ) from error


def are_caught_up(page: bytes) -> bool:
    """Parse the page `raftz` of an engine; return whether all its replicas have caught up.

    A nats-server without a route has no Raft groups; then the result is False.

    Raises:
        msgspec.MsgspecError: the page has an unknown form.
    """
    accounts = msgspec.json.decode(page, type=dict[str, dict[str, _Copy]])
    copies = [copy for groups in accounts.values() for copy in groups.values()]
    return bool(copies) and all(
        copy.leader and not copy.catching_up and copy.committed - copy.applied <= _LATE_RECORDS
        for copy in copies
    )


def read_page(page: bytes, me: str) -> Streams:
    """Parse the monitoring page `jsz` of the engine of host `me`.

    Raises:
        msgspec.MsgspecError: the page has an unknown form.
    """
    found = msgspec.json.decode(page, type=_Page)
    groups = [
        stream.cluster
        for account in found.account_details
        for stream in account.stream_detail
        if stream.cluster is not None
    ]
    led = [group for group in groups if _leader(group) == me]
    lags: dict[str, int] = {}
    behind: set[str] = set()
    at_risk = 0
    for group in led:
        late = {replica.name for replica in group.replicas if _is_behind(replica)}
        copies = len(group.replicas) + 1
        at_risk += copies > 1 and copies - len(late) <= copies // 2 + 1
        behind |= late
        for replica in group.replicas:
            lags[replica.name] = lags.get(replica.name, 0) + replica.lag
    return Streams(
        held=len(groups),
        led=len(led),
        at_risk=at_risk,
        stalled=sum(not _leader(group) for group in groups),
        lags=lags,
        behind=tuple(sorted(behind)),
        used_bytes=found.storage,
        limit_bytes=found.config.max_storage,
    )


def _leader(group: _Group) -> str:
    """Return the host that leads a stream; an empty text if no leader is known.

    A nats-server that has just started, without a route, calls itself the leader but has no group.
    """
    return group.leader if group.raft_group else ""


def _is_behind(replica: _Replica) -> bool:
    # A new leader has got no message from a replica that was lost before the election.
    unheard = not replica.current and not replica.active
    late = unheard or replica.active > BEHIND_S * 1e9
    return replica.offline or late or replica.lag > BEHIND_RECORDS
