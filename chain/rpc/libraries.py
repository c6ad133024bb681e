"""Importing web3's libraries without what that does to the interpreter."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def recursion_kept() -> Iterator[None]:
    """Import what needs eth-account in here.

    One of its libraries (py_ecc) lets Python recurse a hundred times deeper, for the whole
    process: JSON that is nested so deeply, a guest's or an endpoint's, would then end the
    process instead of being refused.
    """
    limit = sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
