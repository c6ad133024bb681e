"""LMDB's lock file, which has the table of readers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest

from fieldbrook.storage.lmdb import lock_file
from fieldbrook.storage.lmdb.environment import FEW_READERS, MAX_READERS, open_environment
from tests.support.disks import fill, small_disk
from tests.support.tools import LIMIT_S

MIB = 1 << 20


def has_all_blocks(store: Path) -> bool:
    found = (store / lock_file.NAME).stat()
    return 0 < found.st_size <= found.st_blocks * 512


def size_of(store: Path) -> int:
    return (store / lock_file.NAME).stat().st_size


@pytest.mark.parametrize("max_readers", [FEW_READERS, MAX_READERS])
def test_a_stores_lock_file_has_its_blocks_and_room_for_the_readers(
    tmp_path: Path, max_readers: int
) -> None:
    with open_environment(tmp_path / "s", map_size=MIB, max_readers=max_readers) as environment:
        assert environment.info()["max_readers"] >= max_readers
        assert has_all_blocks(tmp_path / "s")
        readers = [environment.begin() for _ in range(max_readers)]
        for reader in readers:
            reader.abort()
    assert size_of(tmp_path / "s") < (max_readers + 100) * 64


def test_no_store_is_written_to_through_its_map(tmp_path: Path) -> None:
    with open_environment(tmp_path / "s", map_size=MIB) as environment:
        assert environment.flags()["writemap"] is False


def test_a_lock_file_with_holes_gets_its_blocks_and_the_writers_size(tmp_path: Path) -> None:
    lmdb.open(str(tmp_path / "s"), map_size=MIB, max_readers=MAX_READERS).close()
    assert not has_all_blocks(tmp_path / "s")
    larger = size_of(tmp_path / "s")
    with open_environment(tmp_path / "s", map_size=0, readonly=True):
        assert has_all_blocks(tmp_path / "s")
        assert size_of(tmp_path / "s") == larger
    with open_environment(tmp_path / "s", map_size=MIB, max_readers=FEW_READERS) as environment:
        with environment.begin(write=True) as txn:
            txn.put(b"k", b"v")
        assert has_all_blocks(tmp_path / "s")
        assert size_of(tmp_path / "s") < larger


def test_a_lock_file_that_another_process_uses_keeps_its_size(tmp_path: Path) -> None:
    program = (
        "import lmdb, sys; e = lmdb.open(sys.argv[1], map_size=1 << 20, max_readers=4096);"
        "t = e.begin(); print('open', flush=True); sys.stdin.readline()"
    )
    with (
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "s")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other,
        ended(other),
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        _look_beside_another(tmp_path / "s")
        other.communicate(b"\n", timeout=LIMIT_S)
    assert other.returncode == 0


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Run a process that ends with the test, even if the test fails."""
    try:
        yield
    finally:
        process.kill()


def _look_beside_another(store: Path) -> None:
    before = size_of(store)
    with open_environment(store, map_size=MIB, max_readers=FEW_READERS) as environment:
        assert has_all_blocks(store)
        assert size_of(store) == before
        assert environment.info()["num_readers"] >= 1, "the other's table is in use"
        with environment.begin(write=True) as txn:
            txn.put(b"k", b"v")


def test_a_store_that_is_opened_on_a_full_disk_is_an_error_and_not_a_fatal_signal(
    tmp_path: Path,
) -> None:
    """The test runs in a process of its own, which SIGBUS would end."""
    program = (
        "import sys; from pathlib import Path;"
        "from fieldbrook.core.errors import StoreError;"
        "from fieldbrook.storage.lmdb.environment import open_environment, store_errors\n"
        "try: open_environment(Path(sys.argv[1]), map_size=1 << 20)\n"
        "except StoreError as error: print(error)\n"
    )
    with small_disk(tmp_path / "disk", 4 * MIB) as disk:
        (disk / "store").mkdir()
        old = disk / "old"
        with open_environment(old, map_size=MIB) as environment:
            filler = fill(disk)
            with environment.begin() as first, environment.begin() as second:
                assert first.id() == second.id()
        for store in (disk / "store", disk / "nowhere"):
            done = subprocess.run(
                [sys.executable, "-c", program, str(store)],
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_S,
            )
            assert done.returncode == 0, done.stderr
            assert "the disk is full" in done.stdout
        filler.unlink()
        with (
            open_environment(disk / "store", map_size=MIB) as environment,
            environment.begin(write=True) as txn,
        ):
            assert txn.put(b"k", b"v")
