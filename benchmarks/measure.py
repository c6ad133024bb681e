"""CPU time and memory of process trees, as the kernel counts them (Linux, /proc)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fieldbrook.system.process_tree import descendants

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KIB_PER_MIB = 1024


class BenchmarkError(Exception):
    """A measurement is invalid; the text says why."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of processes, in MiB. PSS counts a page that n processes share as 1/n in each."""

    pss_mib: float
    rss_mib: float


def tree(roots: Iterable[int]) -> list[int]:
    """The processes and all their descendants."""
    return [pid for root in roots for pid in (root, *descendants(root))]


def cpu_s(roots: Iterable[int]) -> float:
    """User and system time of process trees so far, in seconds; 10 ms is the resolution."""
    ticks = 0
    for pid in tree(roots):
        with suppress(OSError):  # it may end between the listing and the reading
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S


def memory(roots: Iterable[int], *, below: bool = True) -> Memory:
    """Memory that processes hold now, with their descendants or without."""
    pss = rss = 0
    for pid in tree(roots) if below else roots:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                name, _, rest = line.partition(":")
                if name == "Pss":
                    pss += int(rest.split()[0])
                elif name == "Rss":
                    rss += int(rest.split()[0])
    return Memory(pss / _KIB_PER_MIB, rss / _KIB_PER_MIB)


class CpuUsage:
    """CPU time while a block runs: of the given servers, and of all other processes.

    The load tool must be a child that has been waited for when the block ends.
    """

    used_s = 0.0
    other_cores = 0.0

    def __init__(self, roots: Sequence[int]) -> None:
        self._roots = roots

    def __enter__(self) -> Self:
        self._before = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        server, own, machine, clock = (
            after - before for after, before in zip(self._now(), self._before, strict=True)
        )
        self.used_s = server
        self.other_cores = max(0.0, machine - server - own) / clock

    def _now(self) -> tuple[float, float, float, float]:
        own = os.times()
        mine = own.user + own.system + own.children_user + own.children_system
        return cpu_s(self._roots), mine, _machine_s(), time.monotonic()


def _machine_s() -> float:
    """Time that all cores were not idle, in seconds since the machine started."""
    first = Path("/proc/stat").read_text().splitlines()[0]
    user, nice, system, _, _, irq, softirq = (int(word) for word in first.split()[1:8])
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


def quantile(values: list[float], q: float) -> float:
    """The smallest of `values` that a share `q` of them does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def wait_for(condition: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
    """Wait for a condition, which is checked every 2 ms.

    Raises:
        BenchmarkError: the condition was not met within the limit.
    """
    limit = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > limit:
            raise BenchmarkError(f"this did not happen within {limit_s:g} s: {what}")
        time.sleep(0.002)
