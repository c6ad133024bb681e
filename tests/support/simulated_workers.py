"""Workers in memory, an event loop whose clock jumps, and a record of what ran.

Frames wait in both directions until the test delivers them, so a test determines the order of all
steps.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Any

from fieldbrook.actors.wire import (
    BY_MQTT,
    LOST,
    NODE_COMMAND,
    NOT_HERE,
    RESUME,
    SOURCE_BITS,
    FrameReader,
    WireEvent,
    frame,
    pack,
    unpack,
)
from fieldbrook.core.errors import StorageFullError, UnavailableError, to_wire


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Connects to simulated workers; its clock jumps to the next timer instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self.workers: dict[str, SimulatedWorker] = {}
        self.failures: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.failures.append(context))
        selector = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def jump(timeout: float | None) -> Any:
            self._now += timeout or 0.0
            return select(0)

        selector.select = jump

    def time(self) -> float:
        return self._now

    async def create_unix_connection(  # type: ignore[override]
        self, factory: Callable[[], asyncio.Protocol], path: str
    ) -> None:
        if path not in self.workers:
            raise FileNotFoundError(path)
        connection = SimulatedConnection(self, factory())
        self.workers[path].connections.append(connection)
        connection.protocol.connection_made(connection)

    def run(self, seconds: float = 0.0) -> None:
        """Run due callbacks, then those that become due within this time."""

        async def turns() -> None:
            for _ in range(6):
                await asyncio.sleep(0)
            if seconds:
                await asyncio.sleep(seconds)

        self.run_until_complete(turns())


class SimulatedConnection(asyncio.Transport):
    """A connection between a gateway and a worker, with both ends."""

    def __init__(self, loop: SimulatedLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self.protocol = protocol
        self.reader = FrameReader()
        self.to_worker: collections.deque[bytes] = collections.deque()
        self.to_gateway: collections.deque[bytes] = collections.deque()
        self.closed = False
        self.refused: set[int] = set()  # projects whose events are refused until RESUME
        self.held: set[int] = set()  # projects with an event that could not be stored

    def write(self, data: Any) -> None:
        self.to_worker.append(bytes(data))

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self.to_worker.clear()
            self.to_gateway.clear()
            self._loop.call_soon(self.protocol.connection_lost, None)

    def answer(self, *answers: tuple[int, Any]) -> None:
        if answers and not self.closed:
            self.to_gateway.append(frame(pack(answers)))

    def deliver_answer(self) -> None:
        if self.to_gateway:
            self.protocol.data_received(self.to_gateway.popleft())


class _Body:
    """Events of a project in a worker; `results` have not been sent."""

    def __init__(self, connection: SimulatedConnection, events: tuple[WireEvent, ...]) -> None:
        self.connection = connection
        self.events = events
        self.ran = 0
        self.results: list[Any] = []


class SimulatedWorker:
    """A worker that keeps all guarantees towards gateways; `ran` is called with each event that
    runs."""

    def __init__(self, path: str, ran: Callable[[int, WireEvent], None]) -> None:
        self.path = path
        self.connections: list[SimulatedConnection] = []
        self.projects: dict[int, collections.deque[_Body]] = {}
        self.full = False  # while set, no event can be stored
        self._ran = ran

    def host(self, project_id: int) -> None:
        self.projects.setdefault(project_id, collections.deque())

    def receive(self, connection: SimulatedConnection) -> None:
        """Read the next frame of a gateway."""
        if not connection.to_worker:
            return
        absent = []
        for data in connection.reader.feed(connection.to_worker.popleft()):
            for project_id, events in unpack(data):
                if _is_resume(events[0]):
                    connection.refused.discard(project_id)
                if project_id in self.projects and project_id not in connection.refused:
                    self.projects[project_id].append(_Body(connection, events))
                else:
                    connection.refused.add(project_id)
                    absent.append((project_id, NOT_HERE))
        connection.answer(*absent)

    def run(self, project_id: int, most: int) -> None:
        """Run the next events of a project, in the order of its bodies; their answers wait."""
        for body in self.projects.get(project_id, ()):
            while body.ran < len(body.events) and most:
                most -= 1
                event = body.events[body.ran]
                body.ran += 1
                body.results.append(self._result(project_id, body.connection, event))
            if body.ran < len(body.events):
                return

    def _result(self, project_id: int, connection: SimulatedConnection, event: WireEvent) -> Any:
        if _is_resume(event):
            connection.held.discard(project_id)
            return ()
        by_mqtt = event[5] & SOURCE_BITS == BY_MQTT
        if by_mqtt and project_id in connection.held:
            return to_wire(UnavailableError(what="an earlier event could not be stored"))
        if self.full:
            if by_mqtt:  # their senders send them again
                connection.held.add(project_id)
            return to_wire(StorageFullError(reason="full"))
        self._ran(project_id, event)
        return ((int(event[2]), 0, ""),)

    def reply(self, project_id: int) -> None:
        """Send the answers of the events that have run."""
        bodies = self.projects.get(project_id, collections.deque())
        while bodies and bodies[0].results:
            body = bodies[0]
            body.connection.answer((project_id, body.results))
            body.results = []
            if body.ran < len(body.events):
                return
            bodies.popleft()

    def retire(self, project_id: int) -> None:
        """End a project: finish the bodies that have begun, and return the others."""
        while any(body.ran for body in self.projects.get(project_id, ())):
            body = self.projects[project_id][0]
            self.run(project_id, len(body.events) - body.ran)
            self.reply(project_id)
        self._end(project_id, 0)

    def fail(self, project_id: int, lost: int) -> None:
        """End a project by an exception: the outcome of its running bodies, at least `lost`, is
        unknown."""
        begun = sum(1 for body in self.projects.get(project_id, ()) if body.ran)
        self._end(project_id, max(lost, begun))

    def _end(self, project_id: int, lost: int) -> None:
        for place, body in enumerate(self.projects.pop(project_id, ())):
            body.connection.answer((project_id, LOST if place < lost else NOT_HERE))
            body.connection.refused.add(project_id)
        for connection in self.connections:
            if project_id in connection.held:
                connection.held.discard(project_id)
                connection.refused.add(project_id)

    def die(self) -> None:
        self.projects.clear()
        for connection in self.connections:
            connection.abort()

    def work(self) -> None:
        """Finish all work, and deliver all answers."""
        for connection in self.connections:
            while connection.to_worker:
                self.receive(connection)
        for project_id in self.projects:
            self.run(project_id, 1 << 30)
            self.reply(project_id)
        for connection in self.connections:
            while connection.to_gateway:
                connection.deliver_answer()


def _is_resume(event: WireEvent) -> bool:
    return event[1] == NODE_COMMAND and event[0] == RESUME
