"""How many connections a gateway process has over all its ports, and which end when it is full.

A process without a free file descriptor cannot open a store or reach a project, and ends. So
connections have a part of its descriptors, the rest is a reserve for everything else.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from fieldbrook.gateway.http.request_stream import lingering
from fieldbrook.observability import metrics
from fieldbrook.observability.logs import Sparse
from fieldbrook.system.process import descriptors

log = logging.getLogger(__name__)

CONNECTIONS_LIMIT = 4_096
_LEAST = 16
_SHARE = 2  # of the process's descriptors, connections have one in so many
_SPARE = 16  # the last descriptors, which no connection gets whatever else is open
# Of a connection over TLS that Tornado serves: its own and the two of its bridge.
_TLS_DESCRIPTORS = 3
_EVICTED_SHARE = 20  # of the connections one in so many goes when there are too many
_LOG_INTERVAL_S = 60.0


class Quiet(NamedTuple):
    """A connection that waits for its client, and not for the node: when the client was last heard
    from (monotonic seconds), and how to close it."""

    since: float
    evict: Callable[[], None]


class Port(Protocol):
    """A port and its connections."""

    @property
    def connections(self) -> int:
        """How many are open or being opened."""

    def quiet(self) -> Iterable[Quiet]:
        """Those that may be ended."""


def connections_limit(*, tls: bool) -> int:
    """How many connections a process may have: as many as its share of descriptors allows."""
    soft = descriptors()
    if soft is None:
        return CONNECTIONS_LIMIT
    each = _TLS_DESCRIPTORS if tls else 1
    return max(_LEAST, min(CONNECTIONS_LIMIT, soft // _SHARE // each))


class Connections:
    """The connections of a process."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.ports: list[Port] = []
        soft = descriptors()
        self._last_descriptor = None if soft is None else soft - _SPARE
        self._flood = Sparse(log, _LOG_INTERVAL_S)

    @property
    def open(self) -> int:
        """How many there are, with those that end and wait for their clients."""
        return sum(port.connections for port in self.ports) + lingering()

    @property
    def is_full(self) -> bool:
        """Whether one more would be too many."""
        return self.open >= self.limit

    def is_spare(self, descriptor: int) -> bool:
        """Whether an accepted connection has one of the last descriptors: something else than
        connections has taken the reserve. The system gives the lowest that is free."""
        return self._last_descriptor is not None and descriptor >= self._last_descriptor

    def evict(self) -> int:
        """End the connections whose clients have been quiet for the longest time; returns how
        many. There is room for others in the loop's next turn."""
        quiet = (each for port in self.ports for each in port.quiet())
        count = max(1, self.limit // _EVICTED_SHARE)
        chosen = heapq.nsmallest(count, quiet, key=lambda each: each.since)
        for each in chosen:
            each.evict()
        metrics.add(metrics.HTTP_CONNECTIONS_EVICTED, len(chosen))
        self._flood.warning(
            "%d connections are open, %d is the limit: %s",
            self.open,
            self.limit,
            "those that are quiet for longest are closed" if chosen else "others wait",
        )
        return len(chosen)

    def refused(self, reason: str) -> None:
        """A connection could not be accepted, for want of something of the system's."""
        self._flood.warning("cannot accept a connection: %s", reason)

    def announce(self) -> None:
        """Say how many connections there may be, and what keeps it from more."""
        soft = descriptors()
        if soft is None or self.limit >= CONNECTIONS_LIMIT:
            log.info("up to %d connections at once in each HTTP gateway", self.limit)
            return
        log.warning(
            "up to %d connections at once in each HTTP gateway, because a process may have %d "
            "files open; a higher limit (ulimit -Hn, LimitNOFILE= of systemd) allows up to %d",
            self.limit,
            soft,
            CONNECTIONS_LIMIT,
        )
