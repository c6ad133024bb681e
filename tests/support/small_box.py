"""Limits of a small machine for a program and all that it starts: memory and cores.

A control group of Linux, of version 2 or 1, as a container has it. That needs root, or a part of
the tree that was delegated. Without it, the program is held to as many cores and its memory is only
measured; `Box.is_enforced` says which.
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
    """The limits, and what became of them.

    Attributes:
        prefix: the words in front of a command that run it inside.
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
        """The most memory so far, with the files that the kernel keeps in memory for it."""
        return self._read("memory.peak", "memory.max_usage_in_bytes")

    @property
    def killed(self) -> int:
        """How many processes the kernel has killed for want of memory."""
        return self._counted("oom_kill", "memory.events", "memory.oom_control")

    @property
    def throttled_s(self) -> float:
        """How long the program has waited because its processor time was used up."""
        if us := self._counted("throttled_usec", "cpu.stat"):
            return us / 1e6
        return self._counted("throttled_time", "cpu.stat") / 1e9

    @property
    def own_bytes(self) -> int:
        """Memory that is not that of files, now."""
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
    """A box of its own, which is removed at the end; what still runs in it must have ended."""
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
    """The folders of new control groups; none where they cannot be made."""
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
        # Beside a group, each process outside of all groups counts as much as 1,024.
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
    if not (folder.parent / "cgroup.procs").exists():  # the parent is no control group
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
