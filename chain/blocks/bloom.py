"""Bloom filters of blocks, which show that a block does not contain certain logs.

The filter in a block's header has 2048 bits. The address and each topic of every log set three
of them. If not all bits of a log are set, the block does not contain it. If all are set, the block
may contain it; other logs can have set the same bits.

Source: Ethereum Yellow Paper, 4.3.1 (the function M); EIP-234 for logs of one block.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from fieldbrook.chain.blocks.logs import Log
from fieldbrook.chain.rpc.answers import BLOOM_BYTES
from fieldbrook.security.keccak import keccak256


@lru_cache(maxsize=8_192)
def bits_of(text: str) -> int:
    """Return a mask with the up to three bits of an address or topic, given as `0x` and digits."""
    digest = keccak256(bytes.fromhex(text[2:]))
    bits = 0
    for at in (0, 2, 4):
        bits |= 1 << (int.from_bytes(digest[at : at + 2]) % (8 * BLOOM_BYTES))
    return bits


def bits_of_filter(address: str, topics: Iterable[str]) -> int:
    """Return the bits that every matching log sets (see `chain.blocks.logs.matches`)."""
    bits = bits_of(address)
    for topic in topics:
        bits |= bits_of(topic) if topic else 0
    return bits


def bloom_of(logs: Iterable[Log]) -> int:
    """Return the filter of a block with exactly these logs."""
    bits = 0
    for found in logs:
        bits |= bits_of_filter(found.address, found.topics)
    return bits


def holds(bloom: int, bits: int) -> bool:
    """Return whether all of `bits` are set in `bloom`."""
    return bloom & bits == bits
