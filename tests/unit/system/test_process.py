"""Programs of ours, and how they end."""

from __future__ import annotations

import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fieldbrook.system.process import FATAL_SIGNALS, module_command
from tests.support.tools import LIMIT_S

PRODUCT = Path(__file__).parent.parent.parent.parent


def test_a_program_of_ours_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    for name in ("json", "msgspec", "wasmtime", "lmdb", "regex", "fieldbrook"):
        (tmp_path / f"{name}.py").write_text(f"open('imported-{name}', 'w').close()\n")
    done = subprocess.run(
        module_command("fieldbrook.wasm.engine.compile", "--help"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.glob("imported-*")) == []


def test_a_program_of_ours_that_a_fatal_signal_ends_leaves_a_traceback(tmp_path: Path) -> None:
    command = module_command("timeit", "-n1", "-r1", "import os; os.abort()")
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in done.stderr
    assert signal.SIGABRT in FATAL_SIGNALS


def test_python_is_started_in_one_place_alone() -> None:
    """If it is started elsewhere, the current folder is first on the import path of the new
    process."""
    folders = ("actors", "chain", "fieldbrook", "gateway", "storage", "wasm")
    users = {
        path.relative_to(PRODUCT).as_posix()
        for folder in folders
        for path in (PRODUCT / folder).rglob("*.py")
        if "sys.executable" in path.read_text()
    }
    assert users == {"fieldbrook/system/process.py"}


def test_what_lies_in_the_current_folder_takes_no_librarys_place(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('the wrong click')\n")
    done = subprocess.run(
        [sys.executable, "-m", "fieldbrook", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for the allocator of glibc")
def test_large_blocks_that_are_not_used_take_no_memory() -> None:
    script = """
import ctypes, sys
from fieldbrook.system.kernel import map_large_blocks
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.calloc.restype = ctypes.c_void_p
def allocated(count):
    return [ctypes.c_void_p(libc.malloc(2 << 20)) for _ in range(count)]
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
if sys.argv[1] == "mapped":
    map_large_blocks()
before = resident()
for block in allocated(1):
    libc.free(block)
used = allocated(16)
for block in used:
    ctypes.memset(block, 1, 2 << 20)
for block in used:
    libc.free(block)
    libc.calloc(1, 2 << 20)
print(resident() - before)
"""

    def growth(how: str) -> int:
        command = [sys.executable, "-c", script, how]
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=True)
        return int(done.stdout)

    assert growth("mapped") < 2 << 20
    assert growth("as it is") > 16 << 20, "this is what the function is for"
