"""Messages between hosts: one JSON object per line, limited in size."""

from __future__ import annotations

import asyncio
import json
from typing import Any

LINE_BYTES = 256 << 10
"""The size limit of a message. The largest one is the answer to a host that joins."""


class LineError(Exception):
    """The other side sent no message in time, or an invalid one."""


async def receive(reader: asyncio.StreamReader, limit_s: float) -> dict[str, Any]:
    """Receive one message. The reader must have been made with the limit `LINE_BYTES`.

    Raises:
        LineError: no message came within `limit_s` seconds, or it is invalid.
        OSError: the connection failed.
    """
    try:
        async with asyncio.timeout(limit_s):
            line = await reader.readuntil(b"\n")
    except TimeoutError:
        raise LineError(f"no message came within {limit_s:g} s") from None
    except asyncio.IncompleteReadError:
        raise LineError("the connection ended") from None
    except asyncio.LimitOverrunError:
        raise LineError(f"the message has more than {LINE_BYTES} bytes") from None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError(f"the message is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise LineError("the message is not a JSON object")
    return message


def send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    """Send one message."""
    writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
