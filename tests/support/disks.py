"""Small disks that a test can fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.tools import require_tool

MIB = 1 << 20


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a file system of `size` bytes at a new folder. Only root may mount one: for other users
    the test is skipped, or fails if CI=true."""
    folder.mkdir(parents=True)
    mount = [require_tool("mount"), "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs"]
    done = subprocess.run([*mount, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no disk can be mounted: {done.stderr}", pytrace=False)
        pytest.skip(f"no disk can be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run([require_tool("umount"), "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the disk of a folder to its last block with a file; return the file."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    assert os.statvfs(folder).f_bavail == 0
    return path
