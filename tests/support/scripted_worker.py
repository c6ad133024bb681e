"""The socket of a worker whose answers are given by the test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from fieldbrook.actors.wire import NODE_COMMAND, RESUME, FrameReader, frame, pack, unpack

Bodies = list[tuple[int, list[str]]]
"""Project ids, and the ids of the events of a body. For a command there is its name, for a map
there are its keys."""


class ScriptedWorker:
    """Keeps the bodies that arrive, and sends the answers that the test gives."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.frames: list[Bodies] = []
        self.connections: list[_Connection] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> ScriptedWorker:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self), self.path)
        return self

    @property
    def bodies(self) -> Bodies:
        """Return all bodies that have arrived."""
        return [body for bodies in self.frames for body in bodies]

    def ids(self, project_id: int) -> list[str]:
        """Return the events of one project that have arrived."""
        return [each for number, ids in self.bodies if number == project_id for each in ids]

    def send(self, *answers: tuple[int, Any]) -> None:
        """Send one frame with these answers on the newest connection."""
        self.send_bytes(frame(pack(answers)))

    def send_bytes(self, data: bytes) -> None:
        self.connections[-1].transport.write(data)

    def die(self) -> None:
        """Close the socket and all connections."""
        if self._server is not None:
            self._server.close()
            Path(self.path).unlink(missing_ok=True)
        for connection in self.connections:
            connection.transport.abort()


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, worker: ScriptedWorker) -> None:
        self._worker = worker
        self._reader = FrameReader()
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._worker.connections.append(self)

    def data_received(self, data: bytes) -> None:
        for received in self._reader.feed(data):
            arrived = unpack(received)
            self._worker.frames.append([(n, [*map(_shown, body)]) for n, body in arrived])

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True


def _shown(event: Any) -> str:
    if isinstance(event, str):  # the key of a map
        return event
    if event[1] == NODE_COMMAND and event[0] == RESUME:
        return RESUME
    shown: str = event[2]
    return shown


def results(*numbers: int) -> list[Any]:
    """Return an answer for this many events, in which each handler returned one of these
    numbers."""
    return [((number, 0, ""),) for number in numbers]
