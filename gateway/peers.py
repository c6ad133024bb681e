"""Questions between the gateway processes of a node, over Unix sockets in its run folder.

Some facts exist only in the memory of one gateway process. The others request them: one frame has
the question, one has the answer. Only the node's user can access the folder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from fieldbrook.actors.wire import frame, pack
from fieldbrook.core.errors import UnavailableError
from fieldbrook.gateway.chain_client import read_frame

log = logging.getLogger(__name__)

_LIMIT_S = 3.0

Answer = Callable[[Any], Awaitable[Any]]
"""Answers a question, given its argument; argument and answer are msgpack values."""
Answers = Mapping[str, Answer]
"""The answering functions, by the names of the questions."""


def peer_socket(run_dir: Path, part: str) -> Path:
    """Return the path of the socket on which a gateway process answers."""
    return run_dir / f"peer-{part}"


async def serve_peers(run_dir: Path, part: str, answers: Answers) -> asyncio.Server:
    """Answer the questions of other gateway processes until the server is closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_LIMIT_S):
                name, argument = await read_frame(reader)
                writer.write(frame(pack(await answers[name](argument))))
                await writer.drain()
        except (OSError, EOFError, ValueError, KeyError, TimeoutError) as error:
            log.debug("a question of another gateway failed: %r", error)
        finally:
            writer.close()

    return await asyncio.start_unix_server(serve, str(peer_socket(run_dir, part)))


async def ask_peer(
    run_dir: Path, part: str, question: str, argument: Any, limit_s: float = _LIMIT_S
) -> Any:
    """Ask one gateway process.

    Raises:
        UnavailableError: the process does not run, or does not answer within the limit.
    """
    try:
        async with asyncio.timeout(limit_s):
            path = peer_socket(run_dir, part)
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                writer.write(frame(pack([question, argument])))
                return await read_frame(reader)
            finally:
                writer.close()
    except (OSError, EOFError, ValueError, TimeoutError):
        raise UnavailableError(what=f"the gateway process {part} does not answer") from None
