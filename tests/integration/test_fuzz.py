"""A short run of the fuzzer; the long one is `python -m tests.fuzz --minutes 10`."""

from __future__ import annotations

from tests import fuzz


def test_damaged_modules_and_wild_calls_harm_no_process() -> None:
    assert fuzz.watch(1, 60)
