"""Decoding of untrusted JSON that has no schema; excessive nesting raises an error instead of a
crash."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable
from typing import Any, NoReturn


class TooDeepError(ValueError):
    """The JSON text is nested more deeply than the decoder can follow."""

    def __init__(self) -> None:
        super().__init__("nested too deeply")


def strict_json(text: bytes | str) -> Any:
    """Decode a JSON text strictly by RFC 8259, so that every value can be stored and re-encoded.

    `json.loads` accepts more: `NaN` and `Infinity`, numbers that overflow to infinity, lone
    surrogates, and encodings other than UTF-8.

    Raises:
        ValueError: the text is not strict JSON.
        RecursionError: the text is nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    value = json.loads(text, parse_float=_finite, parse_constant=_no_number)
    if "\\u" in text:  # only an escape can make a lone surrogate in UTF-8; encoding detects it
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]} is out of range")
    return number


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def from_json(text: bytes | str, decode: Callable[[Any], Any] = strict_json) -> Any:
    """Decode a JSON text with `strict_json` or another decoder.

    The garbage collector is off meanwhile. A decoder recurses for each bracket, and its allocations
    could start a collection deep in the recursion. A finalizer that runs there would have no stack
    left for a call. It would fail, and leak the resource that it should release.

    Raises:
        ValueError: the text is not JSON.
        TooDeepError: the text is nested too deeply.
        Exception: the errors of another decoder are passed on.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return decode(text)
    except RecursionError:
        raise TooDeepError from None
    finally:
        # If two threads decode at the same time, the first one to finish enables the collector for
        # both.
        if collects:
            gc.enable()
