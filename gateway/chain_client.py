"""Client of a chain's process: sends requests as frames over its Unix socket."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

from fieldbrook.actors.project.chains import NUMBER, WITHIN_S, chain_socket
from fieldbrook.actors.wire import frame, pack, unpack
from fieldbrook.chain.transaction import TransactionRefusedError
from fieldbrook.core.errors import ChainUnavailableError, UnavailableError

COMMAND, TARGET = "command", "target"
"""Keys of a management frame: the command, and the transaction to which it applies."""
READ = "read"
"""The key of a frame that asks for a transaction and its receipt by hash."""
CANCEL, RETRY, PARK, RESUME = "cancel", "retry", "park", "resume"
RELEASE = "release"
"""The command that drops the nonce leases of a project; the target is the project's id."""


_LENGTH = struct.Struct("<I")
_FRAME_LIMIT = 64 << 20
_QUESTION_LIMIT_S = 12.0
_ANSWER_LIMIT_S = 11.0  # for the process; less than 12 s, so that its reason arrives


async def call_chain(run_dir: Path, chain_id: int, question: dict[str, Any]) -> Any:
    """Send one request to a chain's process and return its result.

    Raises:
        ChainUnavailableError: the process cannot be reached, or does not answer within 12 s.
        UnavailableError: the process reports that its RPC endpoints are unavailable.
        TransactionRefusedError: the process refused the request; the text gives the reason.
    """
    path = chain_socket(run_dir, f"chain:{chain_id}")
    try:
        async with asyncio.timeout(_QUESTION_LIMIT_S):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                within = {NUMBER: 1, WITHIN_S: _ANSWER_LIMIT_S}
                writer.write(frame(pack({**question, **within})))
                _, good, result = await read_frame(reader)
            finally:
                writer.close()
    except (OSError, EOFError, ValueError, TimeoutError):
        reason = "its process does not answer"
        raise ChainUnavailableError(chain=chain_id, reason=reason) from None
    if good is None:
        raise UnavailableError(what=str(result))
    if not good:
        raise TransactionRefusedError(str(result))
    return result


async def read_frame(reader: asyncio.StreamReader) -> Any:
    """Read the next frame and return its value.

    Raises:
        EOFError, OSError: the peer closed the connection.
        ValueError: the bytes are not a frame.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > _FRAME_LIMIT:
        raise ValueError(f"a frame of {length} bytes exceeds the limit")
    return unpack(await reader.readexactly(length))
