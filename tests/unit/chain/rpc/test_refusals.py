"""The meaning of an error in a JSON-RPC answer: try later, never, or use another endpoint."""

from __future__ import annotations

from typing import Any

import pytest

from fieldbrook.chain.errors import RpcError, UnknownBlockError
from fieldbrook.chain.rpc.refusals import classify_rejection, is_verdict, refusal
from fieldbrook.chain.rpc.transport import BusyError

_LIMITS = (
    # Error texts of public endpoints for ranges that are too large; a range is halved after any
    # error.
    (-32005, "query returned more than 10000 results"),
    (-32005, "limit exceeded"),
    (-32005, "Log response size exceeded. this block range should work: [0x1, 0x2]"),
    (-32614, "eth_getLogs is limited to a 10,000 range"),
    (-32000, "requested too many blocks from 1 to 3000, maximum is set to 2048"),
    (-32602, "range 1000000 exceeds limit of 10000"),
    (35, "ranges over 10000 blocks are not supported on freetier"),
    (-32000, "query timeout exceeded"),
)
_TOO_FAST = (
    (429, "slow down"),
    (-32005, "daily request count exceeded, request rate limited"),
    (-32005, "project ID request rate exceeded"),
    (0, "Your app has exceeded its compute units per second capacity"),
    (-32007, "15/second request limit reached - reduce calls per second"),
    (-32012, "credits limited to 6000/sec"),
    (15, "Too many request, try again later"),
    (-32090, "Too many requests, reason: call rate limit exhausted, retry in 10s"),
)

_OF_THE_CHAIN = (
    # A contract chooses the text of a revert, and a full pool is not a limit of requests.
    ("eth_call", 3, "execution reverted: quota exceeded"),
    ("eth_estimateGas", 3, "execution reverted: out of credits"),
    ("eth_estimateGas", -32000, "execution reverted: capacity"),
    ("eth_sendRawTransaction", -32000, "txpool capacity exceeded"),
    ("eth_sendRawTransaction", -32000, "transaction pool: quota of the sender is used up"),
)

_UNKNOWN_BLOCK = (
    "unknown block",
    "block not found: hash 0x12",
    "Block not found.",
    "header not found",
    "One of the blocks specified in filter (fromBlock, toBlock or blockHash) cannot be found.",
    "block range extends beyond current head block",
)


def _error(code: Any, message: str) -> dict[str, Any]:
    return {"code": code, "message": message}


@pytest.mark.parametrize(
    ("method", "error", "expected"),
    [
        ("eth_call", _error(3, "execution reverted"), RpcError),
        ("eth_call", _error(-32005, "limit exceeded"), BusyError),
        *(("eth_getLogs", _error(*limit), RpcError) for limit in _LIMITS),
        *(("eth_getLogs", _error(*limit), BusyError) for limit in _TOO_FAST),
        *(("eth_getBlockByNumber", _error(*limit), BusyError) for limit in _TOO_FAST),
        *(("eth_getLogs", _error(-32000, text), UnknownBlockError) for text in _UNKNOWN_BLOCK),
        ("eth_getLogs", _error(-32602, "unknown field `blockHash`"), RpcError),
        ("eth_getLogs", _error(-32601, "the method eth_getLogs was not found"), RpcError),
        ("eth_getLogs", _error(-32600, "block range is too wide"), RpcError),
        ("eth_call", "no object", RpcError),
        ("eth_call", _error("x", ""), RpcError),
    ],
)
def test_an_error_limits_the_rate_of_requests_or_refuses_this_one(
    method: str, error: Any, expected: type[Exception]
) -> None:
    assert type(refusal(method, error, str)) is expected


@pytest.mark.parametrize(
    ("method", "code", "text", "verdict"),
    [
        ("eth_call", 3, "execution reverted", True),
        ("eth_call", -32000, "execution reverted: no", True),
        ("eth_estimateGas", -32000, "gas required exceeds allowance (30000000)", True),
        ("eth_estimateGas", -32000, "insufficient funds for transfer", True),
        ("eth_sendRawTransaction", -32000, "nonce too low", True),
        ("eth_sendRawTransaction", -32000, "already known", True),
        ("eth_sendRawTransaction", -32000, "txpool is full", False),
        ("eth_sendRawTransaction", -32000, "exceeds block gas limit", False),
        ("eth_call", -32000, "header not found", False),
        ("eth_call", -32000, "missing trie node 0x12", False),
        ("eth_call", -32002, "project ID does not have access to archive state", False),
        ("eth_getTransactionCount", 4444, "pruned history unavailable", False),
        ("eth_getBlockByNumber", -32601, "the method does not exist", False),
        ("eth_getLogs", -32000, "execution reverted", False),
    ],
)
def test_only_the_verdict_of_the_chain_is_not_asked_for_again_elsewhere(
    method: str, code: int, text: str, verdict: bool
) -> None:
    assert is_verdict(method, RpcError(code, text)) is verdict


def test_the_text_of_an_error_is_redacted() -> None:
    made = refusal("eth_call", {"message": "key s3cret"}, lambda text: text.replace("s3cret", "."))
    assert str(made) == "key ."


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("already known", "known"),
        ("transaction already imported", "known"),
        ("AlreadyKnown", "known"),
        ("Known transaction", "known"),
        ("tx already in mempool", "known"),
        ("tx already exists in the mempool", "known"),
        ("nonce too low: next nonce 3, tx nonce 2", "nonce"),
        ("replacement transaction underpriced", "underpriced"),
        ("insufficient funds for gas * price + value", "funds"),
        ("Insufficient funds for gas * price + value", "funds"),
        ("max fee per gas less than block base fee", "fee"),
        ("intrinsic gas too low", "never"),
        ("intrinsic gas too high -- tx.gas_limit > env.block.gas_limit", "never"),
        ("exceeds block gas limit", "never"),
        ("invalid chain id for signer: have 5 want 1", "never"),
        ("max initcode size exceeded: code size 60000 limit 49152", "never"),
        ("transaction type not supported", "never"),
        ("txpool is full", "other"),
        ("tx fee (1.50 ether) exceeds the configured cap (1.00 ether)", "other"),
    ],
)
def test_what_nodes_say_of_a_transaction_is_understood(text: str, meaning: str) -> None:
    assert classify_rejection(text) == meaning


@pytest.mark.parametrize(("method", "code", "words"), _OF_THE_CHAIN)
def test_words_of_the_chain_are_not_those_of_a_provider(method: str, code: int, words: str) -> None:
    found = refusal(method, {"code": code, "message": words}, str)
    assert isinstance(found, RpcError)
    assert found.text == words
