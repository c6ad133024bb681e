"""JSON of others, decoded without a schema that would bound how deeply it is nested."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from typing import Any


class TooDeepError(ValueError):
    """Brackets within brackets, more of them than a decoder follows."""

    def __init__(self) -> None:
        super().__init__("nested too deeply")


def from_json(text: bytes | str, decode: Callable[[Any], Any] = json.loads) -> Any:
    """The value of a JSON text, by `json.loads` or another decoder.

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
