"""The portable functions have the same results as those for Linux, where possible."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fieldbrook.system import kernel
from fieldbrook.system.kernel import linux, portable
from tests.support.tools import LIMIT_S


@pytest.fixture
def sleeper() -> subprocess.Popen[str]:
    """A program whose child sleeps; it prints the child's id."""
    script = (
        "import subprocess, sys;"
        "child = subprocess.Popen(['sleep', '60']);"
        "print(child.pid, flush=True); sys.stdin.read(); child.kill()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_both_ways_have_the_same_names() -> None:
    def names(module: object) -> set[str]:
        own = getattr(module, "__name__", "")
        return {
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == own and not name.startswith("_")
        }

    assert (
        names(linux)
        == names(portable)
        == set(kernel.__all__)
        - {
            "BALANCES_PORTS",
            "PORTABLE_VARIABLE",
            "is_portable",
        }
    )


def test_descendants_are_the_same(sleeper: subprocess.Popen[str]) -> None:
    with sleeper:
        assert sleeper.stdin is not None
        assert sleeper.stdout is not None
        child = int(sleeper.stdout.readline())
        for way in (linux, portable):
            found = way.parents(os.getpid())
            assert found[sleeper.pid] == os.getpid()
            assert found[child] == sleeper.pid
            assert way.parents(sleeper.pid) == {child: sleeper.pid}
        sleeper.stdin.close()


def test_a_death_is_reported_before_the_process_is_reaped() -> None:
    for way in (linux, portable):
        process = subprocess.Popen(["sleep", "60"])
        watch = way.watch_deaths([process.pid])
        assert watch.wait(0.05) == []
        assert not way.has_ended(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        assert watch.wait(LIMIT_S) == [process.pid]
        assert way.has_ended(process.pid)
        watch.close()
        process.wait()
        assert way.has_ended(process.pid)


def test_a_fork_ends_soon_after_its_parent() -> None:
    script = (
        "import os, time\n"
        "from fieldbrook.system.kernel.portable import die_with\n"
        "parent = os.getpid()\n"
        "pid = os.fork()\n"
        "if pid:\n"
        "    print(pid, flush=True)\n"
        "    time.sleep(0.5)\n"
        "    os._exit(0)\n"
        "die_with(parent)\n"
        "time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True
    )
    limit = time.monotonic() + LIMIT_S
    while not linux.has_ended(int(done.stdout)):
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_allocated_room_is_on_the_disk_and_keeps_what_is_there(tmp_path: Path) -> None:
    for way in (linux, portable):
        path = tmp_path / way.__name__
        path.write_bytes(b"kept")
        with path.open("r+b") as file:
            way.allocate(file.fileno(), 0, 3 << 20)
            way.sync_data(file.fileno())
        assert path.stat().st_size == 3 << 20
        assert path.stat().st_blocks * 512 >= 3 << 20
        assert path.read_bytes().rstrip(b"\0") == b"kept"


def test_no_file_is_in_memory() -> None:
    with pytest.raises(OSError, match="no files in memory"):
        portable.create_memory_file("name", 0)
    assert not portable.is_memory_file(0, "name")
