"""Short runs of the fuzzers; the long ones are `python -m tests.fuzz` and `tests.parsers`."""

from __future__ import annotations

import pytest

from tests import fuzz, parsers


def test_damaged_modules_and_wild_calls_harm_no_process() -> None:
    assert fuzz.watch(1, 60)


@pytest.mark.parametrize("name", parsers.PARSERS)
def test_whatever_arrives_is_read_or_refused_in_words_within_a_second(name: str) -> None:
    for seed in range(3):
        assert parsers.run(seed, name, cases=40) == (40, [])


def test_an_error_that_nobody_expects_and_a_slow_parser_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(data: bytes) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(parsers.PARSERS, "odd", parsers.Parser(fails, [b"a"]))
    monkeypatch.setattr(parsers, "CPU_LIMIT_S", -1.0)
    _, wrong = parsers.run(0, "odd", cases=1)
    assert "ZeroDivisionError" in wrong[0]
    assert " s for " in wrong[1]
