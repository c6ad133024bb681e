"""The connection limit of a gateway process over all its ports, and the eviction at that limit.

A process without a free file descriptor cannot open a store or connect to a project, and ends.
Therefore connections get half of the descriptors. The other half is a reserve for all other files.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from fieldbrook.observability import metrics
from fieldbrook.observability.logs import RateLimitedLog
from fieldbrook.system.process import descriptor_limit

log = logging.getLogger(__name__)

CONNECTIONS_LIMIT = 4_096
_LEAST = 16
_SHARE = 2  # connections may use 1/2 of the process's descriptors
_SPARE = 16  # the last descriptors, which are never given to a connection
# A TLS connection that Tornado serves has its own descriptor and two of its bridge.
TLS_DESCRIPTORS = 3
_EVICTED_SHARE = 20  # at the limit, 1/20 of the connections is closed
_LOG_INTERVAL_S = 60.0


class IdleConnection(NamedTuple):
    """An idle connection: it waits for its client and not for the node.

    `since` is the time of the last sign of the client, in monotonic seconds; `evict` closes the
    connection.
    """

    since: float
    evict: Callable[[], None]


class Port(Protocol):
    """A source of connections that `Connections` counts and may evict from."""

    @property
    def connections(self) -> int:
        """The number of connections that are open or being opened."""

    @property
    def descriptors(self) -> int:
        """The number of file descriptors that these connections have."""

    def idle(self) -> Iterable[IdleConnection]:
        """The idle connections, which may be closed."""


def connections_limit(*, tls: bool, most: int = CONNECTIONS_LIMIT) -> int:
    """Return the connection limit of a process: `most`, or fewer if its file descriptors do not
    suffice."""
    soft = descriptor_limit()
    if soft is None:
        return most
    each = TLS_DESCRIPTORS if tls else 1
    return max(_LEAST, min(most, soft // _SHARE // each))


class Connections:
    """Counts the connections of a process and evicts idle ones at the limit."""

    def __init__(self, limit: int, evicted: int) -> None:
        """Create the count of a process without ports.

        Args:
            limit: the largest number of connections.
            evicted: the metric of connections that are closed at the limit.
        """
        self._evicted = evicted
        self.limit = limit
        self.ports: list[Port] = []
        soft = descriptor_limit()
        self._last_descriptor = None if soft is None else soft - _SPARE
        self._descriptors = None if soft is None else max(soft // _SHARE, limit)
        self._flood = RateLimitedLog(log, _LOG_INTERVAL_S)

    @property
    def open(self) -> int:
        """The number of connections, including those that wait until the client closes them."""
        return sum(port.connections for port in self.ports)

    @property
    def is_full(self) -> bool:
        """Return whether the limit is reached, or all descriptors for connections are used.

        If only some of the ports have TLS, the limit does not include the additional descriptors of
        TLS.
        """
        if self.open >= self.limit:
            return True
        used = sum(port.descriptors for port in self.ports)
        return self._descriptors is not None and used >= self._descriptors

    def is_spare(self, descriptor: int) -> bool:
        """Return whether an accepted connection has one of the last descriptors.

        The system assigns the lowest free descriptor, so this means that other files have used
        up the reserve.
        """
        return self._last_descriptor is not None and descriptor >= self._last_descriptor

    def evict(self) -> int:
        """Close the connections that have been idle for the longest time.

        The file descriptors are free in the next turn of the event loop.

        Returns:
            The number of closed connections.
        """
        quiet = (each for port in self.ports for each in port.idle())
        count = max(1, self.limit // _EVICTED_SHARE)
        chosen = heapq.nsmallest(count, quiet, key=lambda each: each.since)
        for each in chosen:
            each.evict()
        metrics.add(self._evicted, len(chosen))
        self._flood.warning(
            "%d connections are open, the limit is %d: %s",
            self.open,
            self.limit,
            "the longest idle ones are closed" if chosen else "new connections wait",
        )
        return len(chosen)

    def evicted_opening(self, limit: int) -> None:
        """Count and log a connection that was closed in favour of another one while both were being
        opened."""
        metrics.add(self._evicted, 1)
        self._flood.warning(
            "%d connections are being opened, which is the limit: "
            "the oldest ones of the client with most are closed",
            limit,
        )

    def refused(self, reason: str) -> None:
        """Log that a connection could not be accepted because a system resource was missing."""
        self._flood.warning("cannot accept a connection: %s", reason)

    def announce(self) -> None:
        """Log the connection limit, as a warning if the descriptor limit lowers it."""
        soft = descriptor_limit()
        if soft is None or self.limit >= CONNECTIONS_LIMIT:
            log.info("each HTTP gateway accepts up to %d connections at once", self.limit)
            return
        log.warning(
            "each HTTP gateway accepts up to %d connections at once, because a process may have %d "
            "files open; a higher limit (ulimit -Hn, LimitNOFILE= of systemd) allows up to %d",
            self.limit,
            soft,
            CONNECTIONS_LIMIT,
        )
