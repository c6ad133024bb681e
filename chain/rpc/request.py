"""One JSON-RPC request that any endpoint of a chain can answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def unchanged(raw: Any) -> Any:
    """Return a result as it is."""
    return raw


def proves_nothing(_: Any) -> bool:
    """Say that an answer of another chain would look the same (see `Request.proves`)."""
    return False


def compared_later(_: Any) -> None:
    """Say that the caller compares the answer with known blocks (see `Request.proves`)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that any endpoint of the chain can answer.

    Attributes:
        method: a method of JSON-RPC, e.g. `eth_getLogs`.
        params: its parameters as JSON values.
        read: converts the result; raises MalformedAnswerError when it is not usable, or RpcError
            when it is as good as a refusal.
        proves: returns whether what `read` returned proves that it is of this chain, e.g. by a
            block's hash. If not, the endpoint is asked for its chain id after the answer, unless
            the result is None: then the caller finds out. Without this function, the last check
            may be `CHECK_S` old.
        shrink: for a request that can be made smaller: called with the words of a refusal, or ""
            if no answer came. Afterwards the request is made anew.
    """

    method: str
    params: list[Any]
    read: Callable[[Any], Any] = unchanged
    proves: Callable[[Any], bool | None] | None = None
    shrink: Callable[[str], None] | None = None
