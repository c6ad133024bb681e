"""Programs of ours, and how they end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

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
    """Where else it is, the current folder is first on the path of what is started."""
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
