"""The Bloom filter of a block: which logs it cannot have.

A block's header has 2048 bits; the address of each of its logs, and each of their topics, sets
three of them. A log whose bits are not all set is not in the block. One whose bits are set may
be: the bits can be those of others.

Source: Ethereum Yellow Paper, 4.3.1 (the function M); EIP-234 for logs of one block.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fieldbrook.security.operator_keys import keccak256

if TYPE_CHECKING:
    from fieldbrook.chain.blocks.logs import Log

BYTES = 256
FULL = (1 << 8 * BYTES) - 1


def read_bloom(raw: Any) -> int:
    """The bits of a header's `logsBloom`; 0 for whatever is none.

    A chain whose blocks have none, or one that says of everything that it may be there, tells
    nothing: both are 0.
    """
    if not isinstance(raw, str) or len(raw) != 2 + 2 * BYTES or raw[:2] != "0x":
        return 0
    try:
        bits = int.from_bytes(bytes.fromhex(raw[2:]))
    except ValueError:
        return 0
    return 0 if bits == FULL else bits


@lru_cache(maxsize=8_192)
def bits_of(text: str) -> int:
    """The three bits of an address or a topic, in hexadecimal with `0x`."""
    digest = keccak256(bytes.fromhex(text[2:]))
    bits = 0
    for at in (0, 2, 4):
        bits |= 1 << (int.from_bytes(digest[at : at + 2]) % (8 * BYTES))
    return bits


def bits_of_filter(address: str, topics: Iterable[str]) -> int:
    """The bits that each log has that `chain.blocks.logs.matches` these."""
    bits = bits_of(address)
    for topic in topics:
        bits |= bits_of(topic) if topic else 0
    return bits


def bloom_of(logs: Iterable[Log]) -> int:
    """The bits of a block that has these logs and no others."""
    bits = 0
    for found in logs:
        bits |= bits_of_filter(found.address, found.topics)
    return bits


def holds(bloom: int, bits: int) -> bool:
    """Whether all of these bits are set."""
    return bloom & bits == bits
