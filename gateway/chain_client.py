"""Asking a chain's process from another gateway: frames over its socket."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

from fieldbrook.actors.project.chains import NUMBER, chain_socket
from fieldbrook.actors.wire import frame, pack, unpack
from fieldbrook.chain.transaction import TransactionRefusedError
from fieldbrook.core.errors import ChainUnavailableError, UnavailableError

COMMAND, TARGET = "command", "target"
"""A frame of management: a command and the transaction it is about, answered as questions are."""
READ = "read"
"""A frame that asks for the transaction with a hash; answered in the same way."""
CANCEL, RETRY, PARK, RESUME = "cancel", "retry", "park", "resume"
RELEASE = "release"
"""Give up the leases of a project, which is the target."""


_LENGTH = struct.Struct("<I")
_FRAME_LIMIT = 64 << 20
_QUESTION_LIMIT_S = 12.0


async def ask_chain(run_dir: Path, chain_id: int, question: dict[str, Any]) -> Any:
    """Ask a chain's process from another gateway.

    Raises:
        UnavailableError: its process cannot be reached or does not answer, or none of
            its endpoints does.
        TransactionRefusedError: it says no, for the reason given.
    """
    path = chain_socket(run_dir, f"chain:{chain_id}")
    try:
        async with asyncio.timeout(_QUESTION_LIMIT_S):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                writer.write(frame(pack({**question, NUMBER: 1})))
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
    """The next frame's value.

    Raises:
        EOFError, OSError: the other side is gone.
        ValueError: what comes is no frame.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > _FRAME_LIMIT:
        raise ValueError(f"frame of {length} bytes")
    return unpack(await reader.readexactly(length))
