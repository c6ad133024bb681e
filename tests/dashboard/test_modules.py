"""Modules of the dashboard that need no browser, run by Node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.tools import require_tool

HERE = Path(__file__).parent
TESTS = sorted((HERE / "js").glob("*.test.mjs"))


@pytest.mark.parametrize("test", TESTS, ids=lambda path: path.stem)
def test_modules_without_a_page(test: Path, tmp_path: Path) -> None:
    node = require_tool("node")
    # Browsers take every module as one; Node wants to be told.
    shutil.copytree(HERE.parents[1] / "dashboard", tmp_path / "dashboard")
    (tmp_path / "dashboard" / "package.json").write_text('{"type": "module"}')
    (tmp_path / "js").mkdir()
    copy = shutil.copy(test, tmp_path / "js")
    done = subprocess.run(
        [node, "--test", copy], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
