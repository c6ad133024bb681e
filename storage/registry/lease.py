"""How long the copy of the registry on a host of a cluster may be used.

A host renews its lease with a record in the registry's stream. When the stream has stored that, and
the copy has all changes before it, the copy may be used for `LEASE_S` from the moment before the
record. So a change that was stored at some moment is known on all hosts `LEASE_S` later: those that
do not know it have no lease any more. A host that is cut off stores no record.
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
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # it counts a suspended machine, too


def lease_clock() -> float:
    """The clock of leases, in seconds. All processes of a machine have the same."""
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
        """For how many seconds the copy may be used; negative when it may not."""
        (ends_at,) = _SECONDS.unpack_from(self._map)
        return float(ends_at - lease_clock())

    def require(self) -> None:
        """Check that the copy may be used.

        Raises:
            UnavailableError: it may lack changes, such as a token that was revoked.
        """
        if self.left_s < 0:
            raise UnavailableError(what="this host is not connected to a majority of the hosts")


class NoLease(Lease):
    """A node that runs alone: it has the registry itself."""

    def __init__(self) -> None:
        pass

    @property
    def left_s(self) -> float:
        """Without end."""
        return float("inf")
