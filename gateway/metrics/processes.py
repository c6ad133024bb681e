"""Memory and CPU time of the node's processes, read a few at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fieldbrook.system.kernel import read_stat
from fieldbrook.system.kernel.values import Stat

GATEWAYS, PROJECTS, REST = "gateways", "projects", "rest"
_GATEWAY_PARTS = frozenset({"http", "mqtt"})
_READS_LIMIT = 32  # a read takes about 20 us, and a sample of the series may take 2 ms


class Usage(NamedTuple):
    """Resident bytes by kind of process, and the CPU seconds spent per second."""

    memory: dict[str, float]
    cpu: float


class _Seen(NamedTuple):
    kind: str
    at: float
    resident: float
    cpu_s: float
    cpu_share: float


_ENDED = Stat(0.0, 0.0, 0)


class Processes:
    """The latest figures of each process. At most `_READS_LIMIT` processes are read at once, in
    turns."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def read(self, running: Sequence[tuple[str, int]], now: float) -> Usage:
        """Read the processes that were not read for the longest time.

        Args:
            running: the part (`http:0`, `worker:1`, ...) and the pid of each process.
            now: monotonic seconds.
        """
        kinds = {pid: kind_of(part) for part, pid in running}
        self._seen = {pid: seen for pid, seen in self._seen.items() if pid in kinds}
        oldest = sorted(kinds, key=lambda pid: self._seen[pid].at if pid in self._seen else 0.0)
        for pid in oldest[:_READS_LIMIT]:
            self._look(pid, kinds[pid], now)
        memory = dict.fromkeys((GATEWAYS, PROJECTS, REST), 0.0)
        for seen in self._seen.values():
            memory[seen.kind] += seen.resident
        return Usage(memory, sum(seen.cpu_share for seen in self._seen.values()))

    def _look(self, pid: int, kind: str, now: float) -> None:
        found, before, share = read_stat(pid) or _ENDED, self._seen.get(pid), 0.0
        if before is not None and now > before.at:
            share = max(0.0, found.cpu_s - before.cpu_s) / (now - before.at)
        self._seen[pid] = _Seen(kind, now, found.resident, found.cpu_s, share)


def kind_of(part: str) -> str:
    """Return the kind of process of a part of the node."""
    name = part.partition(":")[0]
    if name in _GATEWAY_PARTS:
        return GATEWAYS
    return PROJECTS if name == "worker" else REST
