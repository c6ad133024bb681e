"""Messages between hosts: JSON objects, one on a line, with a limit of their size."""

from __future__ import annotations

import asyncio
import json
from typing import Any

LINE_BYTES = 256 << 10
"""The largest message: the answer to a host that joins."""


class LineError(Exception):
    """The other side sent something that is no message, or nothing in time."""


async def receive(reader: asyncio.StreamReader, limit_s: float) -> dict[str, Any]:
    """Receive one message; the reader has `LINE_BYTES` as its limit.

    Raises:
        LineError: there is none within `limit_s`, or what came is none.
        OSError: the connection failed.
    """
    try:
        async with asyncio.timeout(limit_s):
            line = await reader.readuntil(b"\n")
    except TimeoutError:
        raise LineError("nothing came in time") from None
    except asyncio.IncompleteReadError:
        raise LineError("the connection ended") from None
    except asyncio.LimitOverrunError:
        raise LineError(f"a message of more than {LINE_BYTES} bytes") from None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError(f"no JSON: {error}") from None
    if not isinstance(message, dict):
        raise LineError("no JSON object")
    return message


def send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    """Send one message."""
    writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
