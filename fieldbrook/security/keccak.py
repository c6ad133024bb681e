"""The digest Keccak-256, as Ethereum uses it. It differs from SHA3-256.

The library is imported at the first use, because most processes need no digest.
"""

from __future__ import annotations


def keccak256(data: bytes) -> bytes:
    """Return the digest of 32 bytes."""
    try:
        from sha3 import keccak_256
    except ImportError:  # there is no wheel for this system; see `install_requires`
        from Crypto.Hash import keccak

        return keccak.new(data=data, digest_bits=256).digest()
    return keccak_256(data).digest()
