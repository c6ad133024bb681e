"""Logs and transactions: parsing the answers of endpoints, and making payloads for handlers.

Endpoints differ in the order of keys, in upper and lower case, and in additional fields. Payloads
for handlers contain only the fields that geth writes, in geth's order. Therefore the payload of an
event has the same bytes each time it is sent, whichever endpoint returned the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.rpc.answers import BLOCK_LIMIT, hex_bytes, quantity

_INDEX_LIMIT = 1 << 32  # exclusive; stores cannot hold larger numbers
_TRANSACTION_KEYS = (
    *("type", "chainId", "nonce", "to", "from", "gas", "gasPrice"),
    *("maxPriorityFeePerGas", "maxFeePerGas", "maxFeePerBlobGas", "value", "input"),
    *("accessList", "blobVersionedHashes", "authorizationList", "v", "r", "s", "yParity", "hash"),
    *("blockHash", "blockNumber", "transactionIndex"),
)


class Log(msgspec.Struct, frozen=True):
    """One log. Hashes, addresses and data are lower-case hexadecimal with `0x`."""

    address: str
    topics: tuple[str, ...]
    data: str
    block: int
    block_hash: str
    transaction_hash: str
    transaction_index: int
    index: int

    def as_json(self, *, removed: bool = False) -> dict[str, Any]:
        """Return the log as geth writes it; quantities are hexadecimal."""
        return {
            "address": self.address,
            "topics": list(self.topics),
            "data": self.data,
            "blockNumber": hex(self.block),
            "transactionHash": self.transaction_hash,
            "transactionIndex": hex(self.transaction_index),
            "blockHash": self.block_hash,
            "logIndex": hex(self.index),
            "removed": removed,
        }


def read_log(raw: Any) -> Log:
    """Parse a log of `eth_getLogs`.

    Raises:
        MalformedAnswerError: the value is not a log, or the log was removed.
    """
    if not isinstance(raw, Mapping) or not isinstance(raw.get("topics"), list):
        raise MalformedAnswerError("a log is not an object with topics")
    if raw.get("removed"):
        raise MalformedAnswerError("a log is marked as removed by a reorganisation")
    return Log(
        address=hex_bytes(raw.get("address"), 20),
        topics=tuple(hex_bytes(topic, 32) for topic in raw["topics"]),
        data=hex_bytes(raw.get("data")),
        block=quantity(raw.get("blockNumber"), BLOCK_LIMIT),
        block_hash=hex_bytes(raw.get("blockHash"), 32),
        transaction_hash=hex_bytes(raw.get("transactionHash"), 32),
        transaction_index=quantity(raw.get("transactionIndex"), _INDEX_LIMIT),
        index=quantity(raw.get("logIndex"), _INDEX_LIMIT),
    )


def read_logs(raw: Any) -> list[Log]:
    """Parse the logs of `eth_getLogs`.

    Raises:
        MalformedAnswerError: the value is not a list of logs.
    """
    if not isinstance(raw, list):
        raise MalformedAnswerError("the logs are not a list")
    return [read_log(found) for found in raw]


def read_receipts(raw: Any) -> list[Log]:
    """Parse the logs of a block from its receipts (`eth_getBlockReceipts`).

    Raises:
        MalformedAnswerError: the value is not a list of receipts.
    """
    if not isinstance(raw, list) or not all(isinstance(found, Mapping) for found in raw):
        raise MalformedAnswerError("the receipts are not a list of objects")
    return [log for found in raw for log in read_logs(found.get("logs"))]


class MinedTransaction(msgspec.Struct, frozen=True):
    """A mined transaction; `payload` is its JSON as geth writes it."""

    block: int
    block_hash: str
    index: int
    payload: bytes


def read_mined_transaction(raw: Any, tx_hash: str) -> MinedTransaction | None:
    """Parse a transaction of `eth_getTransactionByHash`; None while no block includes it.

    Raises:
        MalformedAnswerError: the value is not a transaction, or has another hash.
    """
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise MalformedAnswerError("the transaction is not an object")
    if hex_bytes(raw.get("hash"), 32) != tx_hash:
        raise MalformedAnswerError("it is not the requested transaction")
    if raw.get("blockNumber") is None:
        return None
    try:
        payload = encode_payload(transaction_json(raw))
    except RecursionError:
        raise MalformedAnswerError("the transaction is nested too deeply") from None
    return MinedTransaction(
        quantity(raw["blockNumber"], BLOCK_LIMIT),
        hex_bytes(raw.get("blockHash"), 32),
        quantity(raw.get("transactionIndex"), _INDEX_LIMIT),
        payload,
    )


def transaction_json(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a transaction as geth writes it, without additional fields of an endpoint."""
    return {
        key: _lower(raw[key]) for key in _TRANSACTION_KEYS if key in raw and raw[key] is not None
    } | ({"to": None} if raw.get("to") is None else {})


def matches(log: Log, address: str, topics: Sequence[str]) -> bool:
    """Return whether a log comes from a contract and has the wanted topics at their positions.

    `address` and `topics` must be in the form of `normalize_hex`. An empty topic matches any
    topic or none.
    """
    return log.address == address and all(
        not wanted or (at < len(log.topics) and log.topics[at] == wanted)
        for at, wanted in enumerate(topics)
    )


def normalize_hex(text: str) -> str:
    """Convert hexadecimal digits to lower case with `0x`; an empty text stays empty."""
    return "0x" + text.lower().removeprefix("0x") if text else ""


def encode_payload(value: Mapping[str, Any]) -> bytes:
    """Encode a payload as JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value.lower()
    if isinstance(value, list):
        return [_lower(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _lower(item) for key, item in value.items()}
    return value
