"""The size of one read of the event loop from a connection."""

from __future__ import annotations

import asyncio

READ_BYTES = 1 << 16


def limit_reads(transport: asyncio.BaseTransport) -> None:
    """Have a transport read at most `READ_BYTES` at once instead of asyncio's 256 KiB.

    Each read allocates a buffer of the maximum size. The C library maps and unmaps a buffer above
    128 KiB each time, so a read of 250 bytes takes five times as long.
    """
    transport.max_size = READ_BYTES  # type: ignore[attr-defined]  # of selector transports
