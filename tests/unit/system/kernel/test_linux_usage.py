"""The memory and CPU time of a process, as reported by the kernel."""

from __future__ import annotations

import mmap
import os
import time

from fieldbrook.system.kernel.linux import private_bytes, read_stat

GONE = 2**22 + 1  # above the largest pid
MIB = 1 << 20


def test_the_cpu_time_of_a_process_grows_with_its_work() -> None:
    before = read_stat(os.getpid())
    assert before is not None
    end = time.process_time() + 0.05
    while time.process_time() < end:
        sum(range(100_000))
    after = read_stat(os.getpid())
    assert after is not None
    assert after.cpu_s - before.cpu_s > 0.025  # the kernel counts ticks of 10 ms
    assert after.resident > MIB
    assert after.started_ms < time.time() * 1000


def test_shared_memory_is_not_private() -> None:
    before = private_bytes(os.getpid())
    with mmap.mmap(-1, 64 * MIB) as shared:  # shared and anonymous
        shared.write(b"1" * (64 * MIB))
        assert private_bytes(os.getpid()) < before + 72 * MIB - 64 * MIB
    private = bytearray(b"1") * (64 * MIB)
    assert private_bytes(os.getpid()) > before + 56 * MIB
    assert private


def test_a_process_that_has_ended_uses_nothing() -> None:
    assert read_stat(GONE) is None
    assert private_bytes(GONE) == 0
