"""The output of `scripts/up` during an installation: with recorded lines of pip, and with pip
itself."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.tools import LIMIT_S, PREPARING_S

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "scripts" / "pip_progress.py"
PACKAGE = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "pebble"
version = "1"
"""
# A wheel is a ZIP file: the smallest build backend needs no library.
BACKEND = """
import zipfile
METADATA = "Metadata-Version: 2.1\\nName: pebble\\nVersion: 1\\n"
WHEEL = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{folder}/pebble-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pebble.py", "")
        wheel.writestr("pebble-1.dist-info/METADATA", METADATA)
        wheel.writestr("pebble-1.dist-info/WHEEL", WHEEL)
        wheel.writestr("pebble-1.dist-info/RECORD", "")
    return "pebble-1-py3-none-any.whl"
"""


@pytest.fixture(autouse=True)
def _scripts_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")


def after(*lines: str) -> Any:
    progress = importlib.import_module("pip_progress").Progress()
    for line in lines:
        progress.feed(line)
    return progress


def test_a_download_is_shown_with_its_bytes_and_what_came_before() -> None:
    first = (
        "Collecting click<9,>=8.3 (from fieldbrook==0.1.0)",
        "  Downloading click-8.5.1-py3-none-any.whl (1.2 MB)",
    )
    second = (
        "Collecting wasmtime==50.0.1 (from fieldbrook==0.1.0)",
        "  Downloading wasmtime-50.0.1-py3-none-manylinux1_x86_64.whl (9.6 MB)",
    )
    assert after(*first).text() == "downloading click, 1.2 MB (library 1, 0 MB so far)"
    assert after(*first, *second).text() == "downloading wasmtime, 9.6 MB (library 2, 1 MB so far)"
    far = after(*first, *second, "Progress 4800000 of 9600000")
    assert far.text() == "downloading wasmtime, 4.8 of 9.6 MB (library 2, 6 MB so far)"


def test_building_and_installing_are_steps_of_their_own() -> None:
    assert after().text() == "preparing"
    lines = ("Collecting thespian==4.0.1", "  Preparing metadata (pyproject.toml): started")
    assert after(*lines).text() == "building thespian"
    end = after(*lines, "Installing collected packages: click, thespian, wasmtime")
    assert (end.libraries, end.text(2)) == (3, "installing libraries, 2 of 3")
    assert end.text(9) == "installing libraries, 3 of 3", "an older one may have been replaced"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "pebble"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PACKAGE)
    (folder / "backend.py").write_text(BACKEND)
    return folder


def command(package: Path, tmp_path: Path) -> list[str]:
    target = ("--no-index", "--target", str(tmp_path / "target"))
    return [sys.executable, "-I", str(PROGRAM), *target, str(package)]


def test_without_a_terminal_each_step_is_a_line(package: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        command(package, tmp_path), capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("preparing, 0 s")
    assert lines[-1].startswith("installed 1 library in ")
    assert "\x1b" not in done.stderr
    assert (tmp_path / "target" / "pebble.py").exists()


def test_at_a_terminal_one_line_changes(package: Path, tmp_path: Path) -> None:
    terminal, inside = os.openpty()
    process = subprocess.Popen(
        command(package, tmp_path), stderr=inside, env={**os.environ, "TERM": "xterm"}
    )
    os.close(inside)
    shown = b""
    while b"installed 1 library" not in shown:
        shown += os.read(terminal, 4_096)
    assert process.wait(LIMIT_S) == 0
    os.close(terminal)
    assert shown.count(b"\n") <= 1
    assert b"\r/ " in shown
    assert b"\r- " in shown


def test_a_failure_shows_what_pip_said(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path / "absent", tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 1
    assert "pip failed with exit code 1:\n" in done.stderr
    assert f"{tmp_path / 'absent'}" in done.stderr


def test_the_environment_is_made_with_lines_that_tell_the_time(tmp_path: Path) -> None:
    folder = tmp_path / ".venv"
    command = [sys.executable, "-I", str(PROGRAM), "--venv"]
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, check=False, timeout=PREPARING_S
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == f"making .venv with {Path(sys.executable).name}, 0 s"
    assert lines[-1].startswith("made .venv in ")
    assert (folder / "bin" / "pip").exists()
    (tmp_path / "file").touch()
    done = subprocess.run(
        [*command, str(tmp_path / "file" / ".venv")],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 1
    assert "venv failed with exit code 1:\n" in done.stderr
