"""Memory, files and disk of processes over time, and whether they grow."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.nodes import part_of

WARM_UP = 0.2  # this share of a run is ignored: caches and allocators grow to their size
FLAT_MIB_PER_HOUR = 4.0
FLAT_MIB = 2.0  # less than this does not count as growth, even in a short run
FLAT_FILES = 3.0
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Held:
    """The memory and the files of one process. `own_mib` is memory that belongs to no file; pages
    that processes share count in parts, as in `pss_mib`."""

    pid: int
    part: str
    pss_mib: float
    own_mib: float
    rss_mib: float
    files: int
    threads: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A node at one moment, `at_s` seconds after the load began. `latency_ms` is p50, p99 and the
    maximum of each kind of event since the previous sample, measured from the time at which an
    event was due."""

    at_s: float
    processes: tuple[Held, ...]
    data_mib: float
    sent: int
    acknowledged: int
    latency_ms: dict[str, tuple[float, float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trend:
    """The development of one value of one process after the warm-up: the line through its
    samples."""

    part: str
    what: str
    first: float
    last: float
    rise: float
    allowed: float

    @property
    def flat(self) -> bool:
        return self.rise <= self.allowed


def held_by(pids: Iterable[int]) -> tuple[Held, ...]:
    """Return the resources of processes; those that have just ended are left out."""
    found = []
    for pid in pids:
        with suppress(OSError):
            sizes = {"Pss": 0, "Pss_Anon": 0, "Rss": 0}
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                name, _, rest = line.partition(":")
                if name in sizes:
                    sizes[name] = int(rest.split()[0])
            files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
            mib = {name: kib / 1024 for name, kib in sizes.items()}
            memory = (mib["Pss"], mib["Pss_Anon"], mib["Rss"])
            found.append(Held(pid, part_of(pid), *memory, files, threads))
    return tuple(found)


def allocated_mib(folder: Path) -> float:
    """Return the disk space of all files below a folder."""
    blocks = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            blocks += path.lstat().st_blocks
    return blocks * 512 / (1 << 20)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median of the slopes between any two points (Theil-Sen), which single outliers do
    not affect; 0 for fewer than two points."""
    slopes = [
        (later - sooner) / (then - at)
        for number, (at, sooner) in enumerate(points)
        for then, later in points[number + 1 :]
        if then > at
    ]
    return statistics.median(slopes) if slopes else 0.0


def trends(samples: Sequence[Sample]) -> tuple[list[Trend], list[str]]:
    """Return the trends of memory, files and threads of every process after the warm-up, and the
    problems, including processes that ended or started meanwhile."""
    warm = _warm(samples)
    if len(warm) < 2:
        return [], ["there are too few samples to say anything"]
    seconds = warm[-1].at_s - warm[0].at_s
    memory = max(FLAT_MIB, FLAT_MIB_PER_HOUR * seconds / _HOUR_S)
    found, problems = [], []
    last = {held.pid for held in warm[-1].processes}
    for held in warm[0].processes:
        if held.pid not in last:
            problems.append(f"{held.part} ({held.pid}) has ended")
            continue
        for what, allowed in (("own_mib", memory), ("files", FLAT_FILES), ("threads", FLAT_FILES)):
            points = _points(warm, held.pid, what)
            rise = slope(points) * seconds
            found.append(Trend(held.part, what, points[0][1], points[-1][1], rise, allowed))
    first = {held.pid for held in warm[0].processes}
    problems += [
        f"{held.part} ({held.pid}) was not there from the start"
        for held in warm[-1].processes
        if held.pid not in first
    ]
    problems += [
        f"{trend.part}: {trend.what} rises by {trend.rise:.1f} in {seconds:.0f} s,"
        f" from {trend.first:.1f} to {trend.last:.1f}; {trend.allowed:.1f} is allowed"
        for trend in found
        if not trend.flat
    ]
    return found, problems


def _warm(samples: Sequence[Sample]) -> list[Sample]:
    end = samples[-1].at_s if samples else 0.0
    return [sample for sample in samples if sample.at_s >= WARM_UP * end]


def _points(samples: Iterable[Sample], pid: int, what: str) -> list[tuple[float, float]]:
    return [
        (sample.at_s, float(getattr(held, what)))
        for sample in samples
        for held in sample.processes
        if held.pid == pid
    ]
