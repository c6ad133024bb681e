"""Limits a program and all its child processes to the memory and cores of a small machine.

It uses a control group of Linux, of version 2 or 1, like a container. This needs root, or a
delegated part of the tree. Without it, only the cores are limited, and the memory is only measured;
`Box.is_enforced` tells which of the two holds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PERIOD_US = 100_000
_ROOT = Path("/sys/fs/cgroup")
_SHELL = 'for group in $1; do echo $$ >"$group/cgroup.procs"; done; shift; exec "$@"'


class Box:
    """The limits, and the measured usage.

    Attributes:
        prefix: the words before a command that run it within the limits.
    """

    def __init__(self, groups: list[Path], cores: int) -> None:
        self._groups = groups
        names = " ".join(map(str, groups))
        if groups:
            self.prefix = ["sh", "-c", _SHELL, "box", names]
        else:
            chosen = ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))
            self.prefix = ["taskset", "--cpu-list", chosen]

    @property
    def is_enforced(self) -> bool:
        """Whether the kernel holds the program to the limits of memory and processor time."""
        return bool(self._groups)

    @property
    def peak_bytes(self) -> int:
        """The highest memory usage so far, including cached files."""
        return self._read("memory.peak", "memory.max_usage_in_bytes")

    @property
    def killed(self) -> int:
        """How many processes the kernel has killed because memory was short."""
        return self._counted("oom_kill", "memory.events", "memory.oom_control")

    @property
    def throttled_s(self) -> float:
        """How long the program has waited because its processor time was used up."""
        if us := self._counted("throttled_usec", "cpu.stat"):
            return us / 1e6
        return self._counted("throttled_time", "cpu.stat") / 1e9

    @property
    def own_bytes(self) -> int:
        """The present memory usage without cached files."""
        return self._counted("anon", "memory.stat") or self._counted("total_rss", "memory.stat")

    def _read(self, *names: str) -> int:
        for group in self._groups:
            for name in names:
                with suppress(OSError):
                    return int((group / name).read_text())
        return 0

    def _counted(self, what: str, *names: str) -> int:
        for group in self._groups:
            for name in names:
                with suppress(OSError):
                    for line in (group / name).read_text().splitlines():
                        key, _, value = line.partition(" ")
                        if key == what:
                            return int(value)
        return 0


@contextmanager
def small_box(cores: int, memory_bytes: int) -> Iterator[Box]:
    """Make a new box, which is removed at the end; all its processes must have ended by then."""
    groups = _make(f"fieldbrook-{os.getpid()}-{time.monotonic_ns()}", cores, memory_bytes)
    try:
        yield Box(groups, cores)
    finally:
        for group in groups:
            for _ in range(100):  # the kernel needs a moment after the last process
                with suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.05)


def _make(name: str, cores: int, memory_bytes: int) -> list[Path]:
    """Return the folders of new control groups; none if they cannot be made."""
    quota = cores * _PERIOD_US
    version_2 = {
        "memory.max": str(memory_bytes),
        "memory.swap.max": "0",
        "cpu.max": f"{quota} {_PERIOD_US}",
    }
    memory_1 = {
        "memory.limit_in_bytes": str(memory_bytes),
        "memory.memsw.limit_in_bytes": str(memory_bytes),
    }
    cpu_1 = {
        "cpu.cfs_period_us": str(_PERIOD_US),
        "cpu.cfs_quota_us": str(quota),
        # Each process outside of all groups has the weight 1,024.
        "cpu.shares": "12288",
    }
    for wanted in (
        {_ROOT / name: version_2},
        {_ROOT / "memory" / name: memory_1, _ROOT / "cpu" / name: cpu_1},
    ):
        made = [folder for folder, files in wanted.items() if _make_one(folder, files)]
        if len(made) == len(wanted):
            return made
        for folder in made:
            folder.rmdir()
    return []


def _make_one(folder: Path, files: dict[str, str]) -> bool:
    if not (folder.parent / "cgroup.procs").exists():  # the parent is not a control group
        return False
    with suppress(OSError):
        folder.mkdir()
        for name, value in files.items():
            if "swap" in name or "memsw" in name:
                with suppress(OSError):  # a kernel without accounting of swap
                    (folder / name).write_text(value)
            else:
                (folder / name).write_text(value)
        return True
    with suppress(OSError):
        folder.rmdir()
    return False
