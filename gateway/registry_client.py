"""Client of the registry's actor: sends commands over a socket and matches answers in order."""

from __future__ import annotations

import asyncio
import collections
from pathlib import Path
from typing import Any, cast

from fieldbrook.actors.wire import FrameReader, frame, pack, unpack
from fieldbrook.core.errors import OutcomeUnknownError, UnavailableError, from_wire
from fieldbrook.storage.registry.service import decode_result

_CONNECT_LIMIT_S = 3.0
_RETRY_S = 0.05
_ANSWER_LIMIT_S = 30.0  # in a cluster, a change waits for the end of a silent host's lease
_COMMANDS_LIMIT = 256


class RegistryConnection(asyncio.Protocol):
    """One connection; commands are answered in the order in which they were sent."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._pending: collections.deque[asyncio.Future[tuple[Any, ...]]] = collections.deque()

    @property
    def open(self) -> bool:
        """Whether commands can be sent."""
        return self._transport is not None

    async def call(self, op: str, arguments: dict[str, Any]) -> Any:
        """Send a command and wait for its answer.

        Raises:
            UnavailableError: 256 commands wait already.
            OutcomeUnknownError: the registry did not answer within 15 s, or died.
            NodeError: the error of the command.
        """
        if len(self._pending) >= _COMMANDS_LIMIT:
            raise UnavailableError(what="too many management commands are waiting already")
        assert self._transport is not None
        answer: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()
        self._pending.append(answer)
        self._transport.write(frame(pack([op, arguments])))
        try:
            # Shielded, because a cancelled caller must not break the order of the answers.
            result = await asyncio.wait_for(asyncio.shield(answer), _ANSWER_LIMIT_S)
        except TimeoutError:
            raise OutcomeUnknownError(what="the registry did not answer in time") from None
        if result[0]:
            return decode_result(op, result[1])
        raise from_wire(result[1], dict(result[2]))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the new connection."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Pass each answer to the oldest command without one."""
        for answer in self._reader.feed(data):
            waiting = self._pending.popleft()
            if not waiting.done():
                waiting.set_result(unpack(answer))

    def connection_lost(self, exc: Exception | None) -> None:
        """Answer all pending commands with "outcome unknown"."""
        self._transport = None
        lost = (
            False,
            OutcomeUnknownError.__name__,
            {"what": "the registry ended before it answered"},
        )
        while self._pending:
            waiting = self._pending.popleft()
            if not waiting.done():
                waiting.set_result(lost)


class SocketRegistryClient:
    """Client of the registry's socket; connects when needed and reconnects after a failure."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = RegistryConnection()
        self._connecting = asyncio.Lock()

    async def call(self, op: str, **arguments: Any) -> Any:
        """Run one command of `storage.registry.service.COMMANDS`.

        Raises:
            NodeError: the error of the command; UnavailableError when the registry cannot
                be reached, OutcomeUnknownError when it died or hung during the command.
        """
        connection = await self._connected()
        return await connection.call(op, arguments)

    async def _connected(self) -> RegistryConnection:
        async with self._connecting:
            loop = asyncio.get_running_loop()
            limit = loop.time() + _CONNECT_LIMIT_S
            while not self._connection.open:
                try:
                    _, self._connection = await loop.create_unix_connection(
                        RegistryConnection, str(self._path)
                    )
                except OSError as error:
                    if loop.time() > limit:
                        raise UnavailableError(what="the registry cannot be reached") from error
                    await asyncio.sleep(_RETRY_S)
            return self._connection
