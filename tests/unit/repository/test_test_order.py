"""The order in which test files run."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import LONGEST_FIRST

ROOT = Path(__file__).parents[3]


def test_the_files_that_run_first_exist() -> None:
    assert [file for file in LONGEST_FIRST if not (ROOT / file).exists()] == []
