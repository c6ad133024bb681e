"""Calls of host functions by handlers, as dry runs and traces keep them."""

from __future__ import annotations

import msgspec


class Shown(msgspec.Struct, array_like=True, frozen=True):
    """Bytes for people: the first ones, and how many there are in all."""

    data: bytes
    size: int


class HostCall(msgspec.Struct, array_like=True, frozen=True):
    """A call of a host function by a handler.

    Attributes:
        function: the name of the function.
        strategy_id: the strategy whose handler made the call; 0 in a dry run.
        subject: what the call was about: a key, a statement, a topic, a variable, a chain.
        before: the value of a key before it was written; None for a new key and other functions.
        result: what the handler got, or what it wrote or sent. None when there is none, such as
            the value of an unknown key.
        error: why the call was refused, or "".
        at_us: microseconds from the start of the run to the call.
        us: microseconds that the host worked for it; 0 for what it only keeps until the commit.
    """

    function: str
    strategy_id: int
    subject: Shown
    before: Shown | None
    result: Shown | None
    error: str
    at_us: int
    us: int


def shown(data: bytes, limit_bytes: int) -> Shown:
    """Cut bytes to a limit."""
    return Shown(data[:limit_bytes], len(data))
