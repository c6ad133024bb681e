"""Foreign JSON is decoded without runs of the garbage collector."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from fieldbrook.core.bounded_json import TooDeepError, from_json

DECODERS: list[Callable[[Any], Any]] = [json.loads, msgspec.json.decode]


class Cycle:
    """Garbage that only the collector finds, with a finalizer that needs stack space."""

    finished = 0

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        Cycle.finished += self._calls(20)

    def _calls(self, more: int) -> int:
        return self._calls(more - 1) if more else 1


@pytest.fixture
def thresholds() -> Iterator[range]:
    """The numbers of objects after which the collector starts; some are near the limit of
    nesting."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()  # earlier objects are not examined each time
    yield range(sys.getrecursionlimit() - 300, sys.getrecursionlimit(), 3)
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.parametrize("decode", DECODERS)
def test_what_is_nested_too_deeply_is_refused_and_harms_no_finalizer(
    decode: Callable[[Any], Any], thresholds: range
) -> None:
    Cycle.finished = 0
    for threshold in thresholds:
        gc.collect()
        gc.set_threshold(threshold)
        Cycle()
        with pytest.raises(TooDeepError, match="nested too deeply"):
            from_json(b"[" * 20_000, decode)
    gc.collect()
    assert Cycle.finished == len(thresholds)


@pytest.mark.parametrize("decode", DECODERS)
def test_the_collector_runs_again_afterwards_whatever_was_decoded(
    decode: Callable[[Any], Any],
) -> None:
    assert from_json(b'{"a": [1]}', decode) == {"a": [1]}
    assert gc.isenabled()
    for text in (b"{", b"[" * 20_000, b"\xff"):
        with pytest.raises(ValueError, match="."):
            from_json(text, decode)
        assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        assert from_json("[]") == []
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "text",
    [
        *("NaN", "[Infinity]", '{"a": -Infinity}', "1e400", "[-1e400]", "1" * 400 + ".0"),
        *("1" * 1_000_000, "-" + "1" * 5_000, '{"a": ' + "1" * 1_000_000 + "}"),
        *('"\\ud800"', '{"\\udfff": 1}', '["\\ud83d", "\\ude00"]'),
        *(b'"\xed\xa0\x80"', '"a"'.encode("utf-16"), '"a"'.encode("utf-32-be"), b"\xff"),
    ],
)
def test_what_python_alone_takes_for_json_is_refused_at_once(text: str | bytes) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="."):
        from_json(text)
    assert time.process_time() - began < 1  # quadratic: minutes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ("1e-400", 0.0),
        ("[1.5, 18446744073709551616, -0]", [1.5, 1 << 64, 0]),
        ('{"a": 1, "a": 2}', {"a": 2}),
        (b'\xef\xbb\xbf{"a": "\\u0000"}', {"a": "\0"}),
    ],
)
def test_what_is_json_is_read_as_before(text: str | bytes, value: object) -> None:
    assert from_json(text) == value
