"""What a process uses: memory and CPU time, from /proc."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple

_STAT_BYTES = 1_024
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """Resident bytes, CPU seconds since the start, and the start in Unix milliseconds."""

    resident: float
    cpu_s: float
    started_ms: int


def read_stat(pid: int) -> Stat | None:
    """Memory, CPU time and start of a process; None when it has ended. It takes about 20 us.

    Source: proc_pid_stat(5), fields 14, 15, 22 and 24.
    """
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(descriptor, _STAT_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    words = text.rpartition(b")")[2].split()  # the name before it may have any characters
    try:
        started_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(words[19]) / _TICKS
        spent = (int(words[11]) + int(words[12])) / _TICKS
        return Stat(int(words[21]) * _PAGE, spent, int(started_s * 1000))
    except (IndexError, ValueError):
        return None


def private_bytes(pid: int) -> int:
    """The resident memory that is not that of a file or shared; 0 when the process has ended.

    Maps of stores do not count: the kernel takes their pages back whenever it needs them. Pages
    that a fork has in common with its parent do.

    Source: proc_pid_statm(5).
    """
    with contextlib.suppress(OSError, ValueError):
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - shared) * _PAGE
    return 0
