"""Leases: limit how long a host of a cluster may use its copy of the registry.

A host renews its lease with a record in the registry's stream. When the stream has stored the
record, and the copy has all changes before it, the host may use the copy for `LEASE_S`, counted
from the moment before the record was sent. So `LEASE_S` after a change was stored, each host either
has the change or has no lease any more. A disconnected host stores no record.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

from fieldbrook.core.errors import UnavailableError

LEASE_S = 12.0
"""Longer than an election of the stream's leader, in which nothing is stored: up to 9 s."""

_FILE = "registry_lease"
_SECONDS = struct.Struct("d")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # it counts during suspension, too


def lease_clock() -> float:
    """Return the time of the clock of leases, in seconds. It is the same in all processes of a
    machine."""
    return time.clock_gettime(_CLOCK)


class Lease:
    """The end of this host's lease, for the processes of the host.

    Args:
        run_dir: the folder of sockets.
    """

    def __init__(self, run_dir: Path) -> None:
        descriptor = os.open(run_dir / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < _SECONDS.size:
                os.ftruncate(descriptor, _SECONDS.size)
            self._map = mmap.mmap(descriptor, _SECONDS.size)
        finally:
            os.close(descriptor)

    def renew(self, began: float) -> None:
        """Let the copy be used for `LEASE_S` from `began` on, a time of `lease_clock`."""
        _SECONDS.pack_into(self._map, 0, began + LEASE_S)

    @property
    def left_s(self) -> float:
        """Return for how many seconds the copy may still be used; negative after the end of the
        lease."""
        (ends_at,) = _SECONDS.unpack_from(self._map)
        return float(ends_at - lease_clock())

    def require(self) -> None:
        """Check that the copy may be used.

        Raises:
            UnavailableError: the copy may lack changes, such as the revocation of a token.
        """
        if self.left_s < 0:
            raise UnavailableError(what="this host is not connected to a majority of the hosts")


class NoLease(Lease):
    """The lease of a single node, which needs none because it has the registry itself."""

    def __init__(self) -> None:
        pass

    @property
    def left_s(self) -> float:
        """Return infinity."""
        return float("inf")
