"""Imports web3's libraries without their change to Python's recursion limit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def preserve_recursion_limit() -> Iterator[None]:
    """Restore Python's recursion limit after an import of eth-account or web3.

    Their dependency py_ecc raises the limit a hundredfold for the whole process. With such a
    limit, deeply nested JSON from a guest or an endpoint would overflow the stack and crash the
    process, instead of raising RecursionError.
    """
    limit = sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
