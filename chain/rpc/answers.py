"""Parsers for values in JSON-RPC answers: quantities, bytes and block headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from fieldbrook.chain.errors import IncompleteAnswerError, MalformedAnswerError

BLOCK_LIMIT = 1 << 63  # exclusive; stores cannot hold larger numbers
BLOOM_BYTES = 256
FULL_BLOOM = (1 << 8 * BLOOM_BYTES) - 1
_HEX = re.compile(r"0x[0-9a-fA-F]*+\Z", re.ASCII)


class Header(msgspec.Struct, frozen=True):
    """A block header and the hashes of the block's transactions.

    `bloom` is the Bloom filter of the block's logs as an integer (see `chain.blocks.bloom`). It
    is 0 if the filter contains no information (see `read_bloom`).
    """

    number: int
    hash: str
    parent: str
    transactions: tuple[str, ...] = ()
    bloom: int = 0


def read_header(raw: Any) -> Header:
    """Parse a block of `eth_getBlockByNumber` that was requested without whole transactions.

    Raises:
        MalformedAnswerError: the value is not a block.
    """
    if not isinstance(raw, Mapping):
        raise MalformedAnswerError("the block is not an object")
    listed = raw.get("transactions") or []
    if not isinstance(listed, list):
        raise MalformedAnswerError("the transactions of a block are not a list")
    return Header(
        number=quantity(raw.get("number"), BLOCK_LIMIT),
        hash=hex_bytes(raw.get("hash"), 32),
        parent=hex_bytes(raw.get("parentHash"), 32),
        transactions=tuple(tx.lower() for tx in listed if isinstance(tx, str)),
        bloom=read_bloom(raw.get("logsBloom")),
    )


def read_tagged(raw: Any, tag: str) -> int:
    """Parse the number of a block that was requested by a tag, such as `finalized`.

    Raises:
        IncompleteAnswerError: there is no such block.
        MalformedAnswerError: the value is not a block.
    """
    if raw is None:
        raise IncompleteAnswerError(f"it has no block `{tag}`")
    return read_header(raw).number


def read_bloom(raw: Any) -> int:
    """Parse a header's `logsBloom`.

    Returns:
        The bits of the filter. 0 means that the filter contains no information: it is missing
        or malformed, or all its bits are set, so that it excludes no log.
    """
    if not isinstance(raw, str) or len(raw) != 2 + 2 * BLOOM_BYTES or raw[:2] != "0x":
        return 0
    try:
        bits = int.from_bytes(bytes.fromhex(raw[2:]))
    except ValueError:
        return 0
    return 0 if bits == FULL_BLOOM else bits


def quantity(raw: Any, limit: int = 1 << 256) -> int:
    """Parse a quantity of JSON-RPC.

    Raises:
        MalformedAnswerError: the value is not a quantity, or not below the limit.
    """
    if isinstance(raw, str) and _HEX.match(raw) and 2 < len(raw) <= 66:
        number = int(raw, 16)
        if number < limit:
            return number
    raise MalformedAnswerError("a value is not a hexadecimal number within its limit")


def hex_bytes(raw: Any, size: int | None = None) -> str:
    """Validate a byte string of JSON-RPC, and return it as lower-case hexadecimal with `0x`.

    Raises:
        MalformedAnswerError: the value is not a byte string, or has not `size` bytes.
    """
    digits = len(raw) - 2 if isinstance(raw, str) and _HEX.match(raw) else -1
    if digits % 2 == 0 and size in (None, digits // 2):
        return str(raw).lower()
    raise MalformedAnswerError("a value is not hexadecimal bytes of the required size")
