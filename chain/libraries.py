"""Import web3's libraries without their change to Python's recursion limit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def recursion_kept() -> Iterator[None]:
    """Restore the recursion limit after imports of eth-account or web3.

    One of their libraries (py_ecc) raises the limit a hundredfold for the whole process.
    Deeply nested JSON of a guest or an endpoint would then crash the process instead of being
    refused.
    """
    limit = sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
