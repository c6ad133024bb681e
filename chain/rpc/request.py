"""One JSON-RPC request, and what an endpoint's error in the answer means."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fieldbrook.chain.errors import RpcError, TooManyResultsError
from fieldbrook.chain.rpc.transport import BusyError

METHOD_NOT_FOUND, INTERNAL, UNSUPPORTED = -32601, -32603, -32004
_LIMIT = -32005
_TOO_MANY_REQUESTS = 429
_TEXT_CHARACTERS = 4_096
_TOO_MANY = re.compile(
    r"more than \d+ (results|logs)|query returned more|too many (results|logs)|block range"
    r"|range (is )?too (large|wide|big)|max(imum)? (block )?range|exceeds? (the )?(max|limit)"
    r"|response size|limit exceeded|query timeout|timed? ?out|too large|wide range|reduce",
    re.IGNORECASE,
)
_TOO_FAST = re.compile(
    r"too many requests|rate.?limit|request limit|capacity|per second", re.IGNORECASE
)


def unchanged(raw: Any) -> Any:
    """Return a result as it is."""
    return raw


@dataclass(frozen=True, slots=True)
class Request:
    """A request that any endpoint of the chain can answer.

    Attributes:
        method: a method of JSON-RPC, e.g. `eth_getLogs`.
        params: its parameters as JSON values.
        limit_s: time limit for one endpoint.
        checked: ask for the chain id after the answer, so that no answer of another chain is
            accepted.
        read: converts the result; raises MalformedAnswerError when it is not usable.
    """

    method: str
    params: list[Any]
    limit_s: float
    checked: bool = False
    read: Callable[[Any], Any] = unchanged


def refusal(method: str, error: Any, redacted: Callable[[str], str]) -> Exception:
    """Convert the `error` of an answer to an exception.

    Args:
        method: the method of the request.
        error: the value of `error`, normally an object with code, message and data.
        redacted: removes secrets from a text.

    Returns:
        BusyError when the endpoint limits requests, TooManyResultsError when a query for logs
        must be split, otherwise RpcError.
    """
    error = error if isinstance(error, dict) else {"message": str(error)}
    code, text = error.get("code"), redacted(str(error.get("message", "")))
    text = text[:_TEXT_CHARACTERS]  # an answer may be 128 MiB large
    code = code if isinstance(code, int) else 0
    if code == _TOO_MANY_REQUESTS or _TOO_FAST.search(text):
        return BusyError(text or "too many requests")
    if method == "eth_getLogs" and (code == _LIMIT or _TOO_MANY.search(text)):
        return TooManyResultsError(code, text, error.get("data"))
    if code == _LIMIT:
        return BusyError(text or "limit exceeded")
    return RpcError(code, text, error.get("data"))
