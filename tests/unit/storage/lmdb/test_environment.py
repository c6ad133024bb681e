"""Environments, and the texts of their errors."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import lmdb
import pytest

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.lmdb.environment import open_environment, reader_check, store_errors
from tests.support.tools import LIMIT_S

MIB = 1 << 20
REASON_OF_A_SHORT_WRITE = "the disk is full or failing (input/output error)"


def test_a_new_store_is_a_folder_nobody_else_may_enter(tmp_path: Path) -> None:
    with open_environment(tmp_path / "a" / "b", map_size=MIB):
        assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "a" / "b" / "data.mdb").stat().st_mode) == 0o600


def test_a_reader_creates_nothing_and_says_there_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store here"):
        open_environment(tmp_path / "absent", map_size=MIB, readonly=True)
    assert not (tmp_path / "absent").exists()


def test_a_foreign_file_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"not a store" * 4096)
    with pytest.raises(StoreError, match="foreign or overwritten"):
        open_environment(tmp_path, map_size=MIB)


def test_a_full_map_says_that_the_size_limit_was_reached(tmp_path: Path) -> None:
    with (
        open_environment(tmp_path / "store", map_size=MIB) as environment,
        pytest.raises(StoreError, match="size limit"),
        store_errors(tmp_path),
        environment.begin(write=True) as txn,
    ):
        for number in range(10_000):
            txn.put(str(number).encode(), bytes(1_000))


def test_a_file_in_place_of_the_folder_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=r"File exists|Not a directory"):
        open_environment(tmp_path / "file", map_size=MIB)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(28, "No space left on device"), "disk is full"),
        (PermissionError(13, "Permission denied"), "no permission"),
        (lmdb.CorruptedError("page", -30796), "corrupt"),
        (lmdb.PanicError("fatal", -30795), "corrupt"),
        (lmdb.VersionMismatchError("open", -30794), "another version of LMDB"),
        (lmdb.ReadersFullError("begin", -30790), "too many processes read"),
        (lmdb.DiskError("commit", 28), "disk is full"),
        (OSError(5, "Input/output error"), "full or failing"),
        (lmdb.BadTxnError("put", -30782), "put"),
    ],
)
def test_every_failure_reads_in_plain_words(error: OSError | lmdb.Error, reason: str) -> None:
    with pytest.raises(StoreError, match=reason), store_errors("/data/registry"):
        raise error


def test_a_failure_that_is_not_the_stores_passes_unchanged() -> None:
    with pytest.raises(KeyError), store_errors():
        raise KeyError("ours")


def test_a_commit_that_does_not_fit_the_disk_fails_and_the_store_goes_on(tmp_path: Path) -> None:
    """The disk is full by a limit on the size of files, in a process of its own."""
    program = textwrap.dedent(
        """
        import resource, signal, sys
        from pathlib import Path
        from fieldbrook.core.errors import StoreError
        from fieldbrook.storage.lmdb.environment import open_environment, store_errors

        environment = open_environment(Path(sys.argv[1]), map_size=64 << 20)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        try:
            with store_errors(), environment.begin(write=True) as txn:
                txn.put(b"large", bytes(8 << 20))
        except StoreError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        with store_errors(), environment.begin(write=True) as txn:
            txn.put(b"small", b"value")
        with environment.begin() as txn:
            print(txn.get(b"small"), txn.get(b"large"))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.splitlines() == [REASON_OF_A_SHORT_WRITE, "b'value' None"], done.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_the_slot_of_a_killed_reader_is_freed(tmp_path: Path) -> None:
    with open_environment(tmp_path / "store", map_size=MIB) as environment:
        program = (
            "import sys, time; from pathlib import Path;"
            "from fieldbrook.storage.lmdb.environment import open_environment;"
            "e = open_environment(Path(sys.argv[1]), map_size=0, readonly=True);"
            "t = e.begin(); print('reading', flush=True); time.sleep(60)"
        )
        reader = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "store")], stdout=subprocess.PIPE
        )
        assert reader.stdout is not None
        with reader.stdout:
            assert reader.stdout.readline() == b"reading\n"
            assert reader_check(environment) == 0
            os.kill(reader.pid, signal.SIGKILL)
            reader.wait()
        assert reader_check(environment) == 1


@pytest.mark.parametrize("map_bytes", [64 * MIB, MIB])
def test_a_reader_follows_a_store_that_grows_after_it_was_opened(
    tmp_path: Path, map_bytes: int
) -> None:
    with open_environment(tmp_path / "store", map_size=map_bytes) as environment:
        program = (
            "import sys; from pathlib import Path;"
            "from fieldbrook.storage.lmdb.environment import open_environment;"
            "e = open_environment(Path(sys.argv[1]), map_size=0, readonly=True);"
            "print('open', flush=True); sys.stdin.readline();"
            "print(len(e.begin().get(b'large')))"
        )
        reader = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "store")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"open\n"
        environment.set_mapsize(64 * MIB)  # like a writer when the store is full
        with environment.begin(write=True) as txn:
            txn.put(b"large", bytes(32 * MIB))
        answer, _ = reader.communicate(b"\n", timeout=LIMIT_S)
        assert answer == b"33554432\n"
