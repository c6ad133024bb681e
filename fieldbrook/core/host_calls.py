"""Records of handlers' calls of host functions, for dry runs and traces."""

from __future__ import annotations

import msgspec


class Shown(msgspec.Struct, array_like=True, frozen=True):
    """Bytes to be displayed: the first bytes, and the total number."""

    data: bytes
    size: int


class HostCall(msgspec.Struct, array_like=True, frozen=True):
    """A call of a host function by a handler.

    Attributes:
        function: the name of the function.
        strategy_id: the strategy whose handler made the call; 0 in a dry run.
        subject: the object of the call: a key, a statement, a topic, a variable or a chain.
        before: the value of a key before it was written; None for a new key, and for other
            functions.
        result: the bytes that the handler got, wrote or sent. None if there are none, for example
            for an unknown key.
        error: why the call was refused, or "".
        at_us: microseconds from the start of the run to the call.
        us: microseconds of work in the host; 0 for an effect that is only kept until the commit.
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
