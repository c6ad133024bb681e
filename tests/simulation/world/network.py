"""Unix stream sockets between the processes of a simulated node.

Bytes arrive in order, after some time. When a process dies, its last data may still arrive, or may
be lost with the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from fieldbrook.actors.frame_server import Connection
from tests.simulation.world.machine import Machine, Process

LOSES = 0.3  # how often the last data of a process are lost at its death
SOCKET_BYTES = 256  # the size of the kernel's buffer for data that a client has not read
OUTPUT_BYTES = 1 << 10  # the size of a server's own buffer


class _Way:
    """One direction of a connection."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._last = 0.0
        self.cut = False

    def send(self, to: Process | None, call: Callable[[], None]) -> None:
        machine = self._machine
        self._last = max(self._last, machine.now + machine.delay())
        machine.at(self._last - machine.now, to, lambda: None if self.cut else call())


class Transport(asyncio.Transport):
    """The client's side."""

    def __init__(self, link: Stream, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.max_size = 0
        self._link = link
        self._protocol = protocol
        self._ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._ended:
            self._link.to_server(bytes(data))

    def is_closing(self) -> bool:
        return self._ended

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._ended:
            self._link.client_closes()
            self.lost()

    def deliver(self, data: bytes) -> None:
        if not self._ended:
            self._link.has_read(len(data))
            self._link.loop_step(lambda: self._protocol.data_received(data))

    def lost(self) -> None:
        """Handle the end of the connection."""
        if not self._ended:
            self._ended = True
            self._link.loop_step(lambda: self._protocol.connection_lost(None))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Socket:
    """The server's side: the functions of a socket that `wire.Connection` uses."""

    def __init__(self, link: Stream, number: int) -> None:
        self._link = link
        self._number = number
        self.received = bytearray()
        self.ended = False

    def setblocking(self, _flag: bool) -> None: ...

    def settimeout(self, _seconds: float) -> None: ...

    def fileno(self) -> int:
        return self._number

    def recv(self, size: int) -> bytes:
        data = bytes(self.received[:size])
        del self.received[:size]
        return data

    def send(self, data: bytes) -> int:
        """Send as many bytes as fit into the kernel's buffer."""
        self._link.machine.pass_point("answer")
        if self._link.client_gone:
            raise BrokenPipeError(32, "Broken pipe")
        room = SOCKET_BYTES - self._link.unread
        if room <= 0:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        self._link.to_client(bytes(data[:room]))
        return min(room, len(data))

    def sendall(self, data: bytes) -> None:
        """Send the waiting data when the server ends, if the client reads them."""
        if self.send(data) < len(data):
            raise TimeoutError

    def shutdown(self, _how: int) -> None:
        self._link.server_closes()
        self._link.server.end(self)

    def close(self) -> None:
        self._link.server_closes()


class Stream:
    """One connection."""

    def __init__(
        self,
        machine: Machine,
        client: Process,
        server: Server,
        loop_step: Callable[[Callable[[], None]], None],
    ) -> None:
        self.machine = machine
        self.loop_step = loop_step
        self.client_gone = False
        self.unread = 0  # bytes that the server has sent and the client has not read
        self._client, self.server = client, server
        self._up, self._down = _Way(machine), _Way(machine)
        self._socket = server.accept(self)
        self._transport: Transport | None = None
        client.at_death.append(self.client_closes)
        server.process.at_death.append(self._server_dies)

    def attach(self, protocol: asyncio.Protocol) -> Transport:
        self._transport = Transport(self, protocol)
        return self._transport

    def to_server(self, data: bytes) -> None:
        if self.server.process.alive:
            self._up.send(self.server.process, lambda: self.server.receive(self._socket, data))

    def to_client(self, data: bytes) -> None:
        transport, client = self._transport, self._client
        assert transport is not None
        self.unread += len(data)
        self._down.send(client, lambda: client.read(lambda: transport.deliver(data)))

    def has_read(self, size: int) -> None:
        """Record that the client has read, so that the server's socket has space again."""
        self.unread -= size
        if self.server.process.alive:
            self.server.on_arrival()

    def client_closes(self) -> None:
        if not self.client_gone:
            self.client_gone = True
            self._up.send(self.server.process, lambda: self.server.end(self._socket))

    def server_closes(self) -> None:
        transport, client = self._transport, self._client
        if transport is not None and not self.client_gone:
            self._down.send(client, lambda: client.read(transport.lost))

    def _server_dies(self) -> None:
        transport, client = self._transport, self._client
        if transport is None or self.client_gone:
            return
        if self.machine.random.random() < LOSES:
            self._down.cut = True
            self.machine.at(self.machine.delay(), client, lambda: client.read(transport.lost))
        else:
            self._down.send(client, lambda: client.read(transport.lost))


class Server:
    """The listening side, with the interface of `wire.FrameServer` that workers use."""

    def __init__(self, network: Network, process: Process, path: Path) -> None:
        self.process = process
        self.stopping = False
        self.on_arrival: Callable[[], None] = lambda: None
        self._network = network
        self._path = str(path)
        self._connections: dict[Socket, Connection] = {}
        self._ready: list[Socket] = []
        self._unread: list[Connection] = []  # those for which answers wait
        self._accepted = 0
        network.servers[self._path] = self
        process.at_death.append(self._vanish)

    def _vanish(self) -> None:
        if self._network.servers.get(self._path) is self:
            del self._network.servers[self._path]

    def accept(self, link: Stream) -> Socket:
        self._accepted += 1
        made = Socket(link, self._accepted)
        self._connections[made] = Connection(cast(Any, made), self._unread.append)
        return made

    def receive(self, to: Socket, data: bytes) -> None:
        if to in self._connections:
            to.received += data
            self._mark(to)

    def end(self, of: Socket) -> None:
        of.ended = True
        self._mark(of)

    def _mark(self, ready: Socket) -> None:
        if ready not in self._ready:
            self._ready.append(ready)
        self.on_arrival()

    def poll(self) -> list[tuple[Connection, bytes]]:
        """Return all frames that have arrived; connections take turns in any order."""
        self._unread[:] = [connection for connection in self._unread if connection.flush()]
        ready, self._ready = self._ready, []
        if len(ready) > 1:
            self._network.machine.random.shuffle(ready)
        requests: list[tuple[Connection, bytes]] = []
        for each in ready:
            connection = self._connections.get(each)
            if connection is None:
                continue
            frames = connection.receive() if each.received else None
            if frames is None or connection.closed:
                del self._connections[each]
                connection.close()
                continue
            requests.extend((connection, data) for data in frames)
            if each.received or each.ended:
                self._mark(each)
        return requests

    def wake(self) -> None:
        self.on_arrival()

    def stop(self) -> None:
        self.stopping = True

    def close(self) -> None:
        self._vanish()
        for connection in self._connections.values():
            connection.close(1.0)


class Network:
    """The sockets of a machine, by path."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.servers: dict[str, Server] = {}

    def listen(self, path: Path) -> Server:
        """Open a listening socket for the current process."""
        assert self.machine.current is not None
        return Server(self, self.machine.current, path)

    def connect(
        self, client: Process, path: str, loop_step: Callable[[Callable[[], None]], None]
    ) -> Stream:
        """Connect to a listening socket.

        Raises:
            FileNotFoundError: there is no listening socket.
        """
        server = self.servers.get(path)
        if server is None or not server.process.alive:
            raise FileNotFoundError(2, "No such file or directory", path)
        return Stream(self.machine, client, server, loop_step)
