"""What the error in an answer of JSON-RPC means."""

from __future__ import annotations

from typing import Any

import pytest

from fieldbrook.chain.errors import RpcError, TooManyResultsError
from fieldbrook.chain.rpc.request import refusal
from fieldbrook.chain.rpc.transport import BusyError

_TOO_MANY = (
    "query returned more than 10000 results",
    "Log response size exceeded. this block range should work: [0x1, 0x2]",
    "eth_getLogs is limited to a 10,000 block range",
)
_TOO_FAST = (
    "daily request count exceeded, request rate limited",
    "Your app has exceeded its compute units per second capacity",
)


def _error(code: int, message: str) -> dict[str, Any]:
    return {"code": code, "message": message}


@pytest.mark.parametrize(
    ("method", "error", "expected"),
    [
        ("eth_call", {"code": 3, "message": "execution reverted"}, RpcError),
        ("eth_call", {"code": 429, "message": "slow down"}, BusyError),
        ("eth_call", {"code": -32005, "message": "limit exceeded"}, BusyError),
        ("eth_getLogs", {"code": -32005, "message": "limit exceeded"}, TooManyResultsError),
        ("eth_getLogs", {"code": -32000, "message": "block range too wide"}, TooManyResultsError),
        ("eth_getLogs", {"code": 0, "message": "rate limit reached"}, BusyError),
        # What public endpoints say of their limits:
        ("eth_getLogs", _error(-32602, "query exceeds max block range 5000"), TooManyResultsError),
        ("eth_getLogs", _error(-32000, "query timeout exceeded"), TooManyResultsError),
        ("eth_getLogs", _error(-32000, "unknown block"), RpcError),
        ("eth_getLogs", _error(429, "Too Many Requests"), BusyError),
        *(("eth_getLogs", _error(-32005, text), TooManyResultsError) for text in _TOO_MANY),
        *(("eth_getLogs", _error(-32005, text), BusyError) for text in _TOO_FAST),
        ("eth_call", "no object", RpcError),
        ("eth_call", {"code": "x"}, RpcError),
    ],
)
def test_an_error_is_a_limit_of_requests_or_of_results_or_a_refusal(
    method: str, error: Any, expected: type[Exception]
) -> None:
    assert type(refusal(method, error, str)) is expected


def test_the_text_of_an_error_is_redacted() -> None:
    made = refusal("eth_call", {"message": "key s3cret"}, lambda text: text.replace("s3cret", "."))
    assert str(made) == "key ."
