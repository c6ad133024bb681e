"""Classifies JSON-RPC errors of endpoints by their code and their text.

There are three kinds:

* A *rate limit*: the endpoint limits requests. The request is sent again later.
* A *verdict*: the request fails by the rules of the chain, e.g. a call that reverts. Every
  endpoint would return it, so it goes to the caller.
* Every other error concerns *this endpoint*: it lacks a method, old state or a block, or the plan
  of its provider does not include the request. Another endpoint may answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from fieldbrook.chain.errors import RpcError, UnknownBlockError
from fieldbrook.chain.rpc.transport import BusyError, TransportError

_LIMIT, _TOO_MANY_REQUESTS, _REVERTED = -32005, 429, 3
_TEXT_CHARACTERS = 4_096
_TOO_FAST = re.compile(
    r"too many requests?\b|rate.?limit|rate exceeded|request limit|capacity|per second|/sec\b"
    r"|throttl|credits|quota|request count exceeded",
    re.IGNORECASE,
)
# A full pool ("txpool is at capacity") is no limit of requests.
_POOL_IS_FULL = re.compile(r"(tx|transaction|mem) ?pool", re.IGNORECASE)
_VERDICT = re.compile(
    r"revert|out of gas|invalid opcode|invalid jump|stack (under|over)flow|write protection"
    r"|gas required exceeds|always failing|insufficient funds|insufficient balance"
    r"|exceeds (the )?block gas limit|intrinsic gas",
    re.IGNORECASE,
)

_UNKNOWN_BLOCK = re.compile(
    # go-ethereum and others; Erigon, Reth and EIP-234; OpenEthereum and Alchemy
    r"unknown (block|header)\b|\b(block|header)s?\b.{0,120}\b(not|cannot be) found"
    r"|beyond (the )?(current )?head",
    re.IGNORECASE,
)

Rejection = Literal["known", "nonce", "underpriced", "funds", "fee", "never", "other"]

# Messages of go-ethereum, Besu, OpenEthereum; Nethermind; chains made with the Cosmos SDK.
_KNOWN = re.compile(
    r"already ?known|known transaction|already imported|already (exists )?in (the )?(mem)?pool"
)

# Messages of go-ethereum, Erigon, Nethermind, Besu, Reth and Anvil for transactions that can
# never be valid.
_PERMANENT = re.compile(
    r"intrinsic gas|floor data gas|exceeds (the )?(block|transaction|tx) gas limit"
    r"|gas limit (is )?too high|exceeds block gas|gas too high|max initcode|code size"
    r"|contract creation|type not supported|unsupported transaction type|invalid sender"
    r"|(invalid|wrong|incorrect) ?chain ?id|oversized data|transaction size exceeds"
    r"|invalid signature|signature is invalid|gas uint64 overflow|replay-protected",
    re.IGNORECASE,
)


def result_of(method: str, answer: dict[str, Any], redacted: Callable[[str], str]) -> Any:
    """Return the result of an answer.

    Args:
        method: the method of the request.
        answer: a JSON-RPC answer.
        redacted: removes secrets from a text.

    Raises:
        BusyError, UnknownBlockError, RpcError: the answer has an error; see `refusal`.
        TransportError: the answer has neither a result nor an error.
    """
    error = answer.get("error")
    if error is not None:
        raise refusal(method, error, redacted)
    if "result" not in answer:
        raise TransportError("its answer has neither result nor error")
    return answer["result"]


def refusal(method: str, error: Any, redacted: Callable[[str], str]) -> BusyError | RpcError:
    """Convert the `error` of an answer to an exception.

    Args:
        method: the method of the request.
        error: the value of `error`, normally an object with code, message and data.
        redacted: removes secrets from a text.

    Returns:
        BusyError if the endpoint limits requests, UnknownBlockError if it does not know the
        request's block, otherwise RpcError.
    """
    error = error if isinstance(error, dict) else {"message": str(error)}
    code, text = error.get("code"), redacted(str(error.get("message", "")))
    text = text[:_TEXT_CHARACTERS]  # an answer may be 128 MiB large
    code = code if isinstance(code, int) else 0
    # For logs, -32005 usually limits their number or the range, not the requests.
    busy = code == _TOO_MANY_REQUESTS or (code == _LIMIT and method != "eth_getLogs")
    kind = UnknownBlockError if _UNKNOWN_BLOCK.search(text) else RpcError
    made = kind(code, text, error.get("data"))
    if busy or (_TOO_FAST.search(text) and not _is_of_the_chain(method, made)):
        return BusyError(text or "too many requests")
    return made


def _is_of_the_chain(method: str, error: RpcError) -> bool:
    """Return whether an error that reads like a provider's rate limit comes from the chain.

    A contract chooses the text of its reverts, so the text can contain any words.
    """
    full = method == "eth_sendRawTransaction" and _POOL_IS_FULL.search(error.text) is not None
    return full or is_verdict(method, error)


def is_verdict(method: str, error: RpcError) -> bool:
    """Return whether an error follows from the rules of the chain, so every endpoint returns it."""
    match method:
        case "eth_call" | "eth_estimateGas":
            return error.code == _REVERTED or _VERDICT.search(error.text) is not None
        case "eth_sendRawTransaction":
            return classify_rejection(error.text) not in ("never", "other")
    return False


def classify_rejection(message: str) -> Rejection:
    """Classify a node's refusal of a transaction by its message.

    Returns:
        `known`: the node has this transaction already.
        `nonce`: a block already includes a transaction with this nonce.
        `underpriced`: the node has another transaction with this nonce, and this one does not
            pay enough to replace it.
        `funds`: the account cannot pay.
        `fee`: the fees are below the current base fee.
        `never`: by the rules of the chain, no block can ever include this transaction.
        `other`: any other message; the reason may be temporary.
    """
    text = message.lower()
    if _KNOWN.search(text):
        return "known"
    if "nonce too low" in text or "nonce is too low" in text or "old nonce" in text:
        return "nonce"
    if "replacement" in text or "underpriced" in text:
        return "underpriced"
    if "insufficient funds" in text or "insufficient balance" in text:
        return "funds"
    if "base fee" in text or "fee cap" in text or "basefee" in text or "gas price too low" in text:
        return "fee"
    if _PERMANENT.search(text):
        return "never"
    return "other"
