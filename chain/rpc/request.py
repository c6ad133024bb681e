"""A JSON-RPC request that any endpoint of a chain can answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def unchanged(raw: Any) -> Any:
    """Return a result as it is."""
    return raw


def proves_nothing(_: Any) -> bool:
    """A `Request.proves` for answers that would look the same on another chain."""
    return False


def compared_later(_: Any) -> None:
    """A `Request.proves` for answers that the caller compares with known blocks."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that any endpoint of the chain can answer.

    Attributes:
        method: a method of JSON-RPC, e.g. `eth_getLogs`.
        params: its parameters as JSON values.
        read: converts the result. It raises MalformedAnswerError if the result is not usable,
            and RpcError if the result counts as a refusal.
        proves: takes the converted result and returns whether it proves that the answer is from
            this chain, e.g. by a known block hash. True: no further check. False: the endpoint
            is asked for its chain id after the answer. None: the caller checks the answer.
            Without this function, the endpoint's chain id is checked if its last check is
            older than `search.CHECK_S`.
        shrink: reduces the size of a request for a range; called with the text of a refusal, or
            with "" if no answer came. Afterwards the request is made again.
    """

    method: str
    params: list[Any]
    read: Callable[[Any], Any] = unchanged
    proves: Callable[[Any], bool | None] | None = None
    shrink: Callable[[str], None] | None = None
