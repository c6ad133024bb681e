"""JSON of others, decoded without a schema that would bound how deeply it is nested."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable
from typing import Any, NoReturn


class TooDeepError(ValueError):
    """Brackets within brackets, more of them than a decoder follows."""

    def __init__(self) -> None:
        super().__init__("nested too deeply")


def strict_json(text: bytes | str) -> Any:
    """The value of a JSON text as RFC 8259 has it, of which everything can be stored and sent on.

    `json.loads` takes more: `NaN` and `Infinity`, numbers that only infinity stands for, halves of
    surrogate pairs, and encodings that JSON has no more.

    Raises:
        ValueError: it is no such text. RecursionError: it is nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    value = json.loads(text, parse_float=_finite, parse_constant=_no_number)
    if "\\u" in text:  # nothing else makes half a pair of a text that was UTF-8
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]} is out of range")
    return number


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def from_json(text: bytes | str, decode: Callable[[Any], Any] = strict_json) -> Any:
    """The value of a JSON text, by `strict_json` or another decoder.

    A decoder calls itself for each bracket, and the values that it makes would start the garbage
    collector while it is deep down: a finalizer that runs there finds no room for a call, does
    not finish, and what it was to release stays. So the collector rests meanwhile.

    Raises:
        ValueError: it is no JSON; TooDeepError: it is nested too deeply. Another decoder raises
            what is its own.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return decode(text)
    except RecursionError:
        raise TooDeepError from None
    finally:
        # Where two threads decode at a time, the first to end lets it run again for both.
        if collects:
            gc.enable()
