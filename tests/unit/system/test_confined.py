"""Work in a child process that may die of it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fieldbrook.system.confined import Bounds, ConfinedError, run_confined

BOUNDS = Bounds(cpu_s=20, timeout_s=30.0, address_bytes=1 << 30, file_bytes=1 << 20)
MODULE = """
import faulthandler
import sys


def main(arguments):
    if arguments == ["crash"]:
        faulthandler._sigsegv()
    sys.stdout.write(sys.stdin.read().upper())
    return 0
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "fb_confined_worker.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "fb_confined_worker"


def test_a_child_gives_what_it_wrote(worker: str, tmp_path: Path) -> None:
    assert run_confined(worker, [], BOUNDS, tmp_path, b"meter") == b"METER"


def test_a_child_that_a_signal_ends_leaves_its_traceback_in_the_log_alone(
    worker: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(ConfinedError) as refused:
        run_confined(worker, ["crash"], BOUNDS, tmp_path)
    assert str(refused.value) == "the process that read it ended with signal 11"
    assert "Segmentation fault" in caplog.text
    assert "in main" in caplog.text
