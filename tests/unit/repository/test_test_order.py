"""The order in which test files run."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import LONGEST_FIRST, shares

ROOT = Path(__file__).parents[3]


def test_the_files_that_run_first_exist() -> None:
    assert [file for file in LONGEST_FIRST if not (ROOT / file).exists()] == []


def test_unit_tests_run_among_the_others() -> None:
    unit = [f"tests/unit/test_{number}.py" for number in range(4)]
    others = [f"tests/chain/test_{number}.py" for number in range(2)]
    share = shares([*others, *unit])
    assert sorted([*others, *unit], key=share.__getitem__) == [
        *(others[0], unit[0], unit[1]),
        *(others[1], unit[2], unit[3]),
    ]
