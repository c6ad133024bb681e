"""Files in memory that several processes append to."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from fieldbrook.system.kernel.linux import create_memory_file, free_before, is_memory_file

_START = 1 << 48


@pytest.fixture
def file() -> Iterator[int]:
    descriptor = create_memory_file("fieldbrook-test", _START)
    yield descriptor
    os.close(descriptor)


def memory_of(descriptor: int) -> int:
    return os.fstat(descriptor).st_blocks * 512


def test_processes_append_whole_writes_without_a_lock(file: int) -> None:
    children = []
    for letter in (b"a", b"b", b"c", b"d"):
        pid = os.fork()
        if pid == 0:
            for _ in range(200):
                os.write(file, letter * 999 + b"\n")
            os._exit(0)
        children.append(pid)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    lines = os.pread(file, 1 << 20, _START).split(b"\n")
    assert lines.pop() == b""
    assert len(lines) == 800
    assert {(len(line), len(set(line))) for line in lines} == {(999, 1)}


def test_memory_before_an_offset_is_freed_and_offsets_stay(file: int) -> None:
    assert memory_of(file) == 0
    os.write(file, b"x" * (1 << 20))
    free_before(file, _START + (1 << 20) - 4096)
    assert memory_of(file) == 4096
    assert os.fstat(file).st_size == _START + (1 << 20)


def test_other_descriptors_are_told_apart(file: int) -> None:
    other = os.memfd_create("fieldbrook-test-2")
    assert is_memory_file(file, "fieldbrook-test")
    assert not is_memory_file(other, "fieldbrook-test")
    os.close(other)
    assert not is_memory_file(other, "fieldbrook-test-2")
