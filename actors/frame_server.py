"""Serves frames (`wire.py`) on a Unix socket: one thread polls, and any thread may answer.

No thread waits for a client that does not read. Answers that its socket does not accept wait in
memory, up to a limit, and are sent when the socket accepts them. A client that reads nothing for
some seconds, or that leaves too much unread, is disconnected. The client then treats its unanswered
requests as after the death of the server.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fieldbrook.actors.wire import FrameReader, frame, pack
from fieldbrook.observability.logs import RateLimitedLog

log = logging.getLogger(__name__)

OUTPUT_BYTES = 16 << 20
"""How many bytes of answers may wait for one client. Only a single answer may be larger."""
_ALL_OUTPUT_BYTES = 64 << 20  # for all clients of a server
OUTPUT_S = 5.0
"""How long a client may read nothing while answers wait for it."""
_LAST_OUTPUT_S = 1.0  # for all clients, when the server closes
# Each read allocates a buffer of this size. Above 128 KiB the C library may map and unmap it
# every time, and a read of 500 bytes then costs 19 us instead of 4.
_READ_BYTES = 1 << 16
_PAUSE_S = 0.2
_LOG_INTERVAL_S = 60.0


class Connection:
    """One connection of a FrameServer.

    Args:
        connection: the socket.
        on_output: called when answers begin to wait. From then on the caller has to call `flush`.
    """

    __slots__ = ("_lock", "_on_output", "_output", "_socket", "_stuck_since", "closed", "reader")

    def __init__(self, connection: socket.socket, on_output: Callable[[Connection], None]) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._on_output = on_output
        self._lock = threading.Lock()  # runners of a worker answer on the same connection
        self._output = bytearray()
        self._stuck_since = 0.0  # monotonic time at which the client last read waiting bytes
        self.reader = FrameReader()
        self.closed = False

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._socket.fileno()

    @property
    def waiting_bytes(self) -> int:
        """The size of the answers that are not sent yet, in bytes."""
        return len(self._output)

    def receive(self) -> list[bytes] | None:
        """Read once; returns the completed frames, or None when the connection has ended."""
        try:
            data = self._socket.recv(_READ_BYTES)
            return self.reader.feed(data) if data else None
        except BlockingIOError:
            return []
        except (OSError, ValueError) as error:
            log.warning("data plane: a connection was closed: %s", error)
            return None

    def answer(self, value: Any) -> None:
        """Send one answer, from any thread, without waiting for the client to read."""
        if self.closed:
            return
        data = frame(pack(value))
        with self._lock:
            if self._output:
                self._output += data
                if len(self._output) > OUTPUT_BYTES:
                    self._drop(f"the client has left {len(self._output)} bytes unread")
                return
            sent = self._send(data)
            if sent == len(data):
                return
            self._output += data[sent:]
            self._stuck_since = time.monotonic()
        self._on_output(self)

    def flush(self) -> bool:
        """Send as much of the waiting answers as the client reads; return whether some still
        wait."""
        with self._lock:
            if self._output:
                del self._output[: self._send(self._output)]
            if self._output and time.monotonic() - self._stuck_since >= OUTPUT_S:
                self._drop(f"the client has read nothing for {OUTPUT_S:.0f} s")
            return bool(self._output)

    def drop(self, reason: str) -> None:
        """End the connection; the client treats its unanswered frames as lost."""
        with self._lock:
            self._drop(reason)

    def _send(self, data: bytes | bytearray) -> int:
        """Send as much as the socket accepts now; return how many bytes were sent or dropped."""
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._drop(f"answer not sent: {error}")
            return len(data)
        self._stuck_since = time.monotonic()
        return sent

    def _drop(self, reason: str) -> None:
        if not self.closed:
            log.warning("data plane: a connection was closed: %s", reason)
        self.closed = True
        self._output.clear()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # so that `poll` returns it

    def close(self, limit_s: float = 0.0) -> None:
        """Close the connection; waiting answers are sent within `limit_s`, or dropped."""
        with self._lock:
            if self._output and limit_s > 0:
                with contextlib.suppress(OSError):
                    self._socket.settimeout(limit_s)
                    self._socket.sendall(self._output)
            self.closed = True
            self._output.clear()
            self._socket.close()


Request = tuple[Connection, bytes]
"""One frame, and the connection on which to answer it."""


class FrameServer:
    """Serves frames in one thread; each poll passes on all frames that have arrived.

    Args:
        path: the socket's file, mode 0600; an old one is replaced.
        on_requests: called by `serve` with the frames of one poll, in order per connection; it
            answers them.
        on_quiet: called by `serve` when `tick_s` has passed without activity.
        tick_s: the poll timeout in seconds.
    """

    def __init__(
        self,
        path: Path,
        on_requests: Callable[[list[Request]], None] = lambda _requests: None,
        on_quiet: Callable[[], None] = lambda: None,
        tick_s: float = 1.0,
    ) -> None:
        self._path = path
        self._on_requests = on_requests
        self._on_quiet = on_quiet
        self._tick_ms = max(1, int(tick_s * 1000))
        self._connections: dict[int, Connection] = {}
        # Connections with waiting answers, and new ones of them, which the next poll has to add.
        self._unread: set[Connection] = set()
        self._new_unread: collections.deque[Connection] = collections.deque()
        self._poll = select.poll()
        self.stopping = False
        self._accept_log = RateLimitedLog(log, _LOG_INTERVAL_S)
        self._accepts_at: float | None = None  # while accepting is paused: when it resumes
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_write.setblocking(False)  # when it is full, `poll` returns anyway
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o177)
        try:
            self._listener.bind(str(path))
        finally:
            os.umask(mask)
        self._listener.listen(64)
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._wake_read, select.POLLIN)

    def stop(self) -> None:
        """Make `serve` return after the current requests; callable from any thread."""
        self.stopping = True
        self.wake()

    def wake(self) -> None:
        """Make `poll` return; callable from any thread."""
        with contextlib.suppress(OSError):  # `serve` may already have ended and closed the socket
            self._wake_write.send(b"!")

    def serve(self) -> None:
        """Serve until `stop`."""
        while not self.stopping:
            requests = self.poll(self._tick_ms)
            if requests:
                self._on_requests(requests)
            elif requests is None:
                self._on_quiet()
        self.close()

    def poll(self, timeout_ms: int) -> list[Request] | None:
        """Wait for frames and return all that have arrived; None when the time has passed.

        Only one thread may poll at a time.
        """
        if self._new_unread or self._unread:
            self._flush()
        ready = self._poll.poll(timeout_ms)
        self._resume_accepting()
        if not ready:
            return None
        listener, wake = self._listener.fileno(), self._wake_read.fileno()
        requests: list[Request] = []
        for fd, _ in ready:
            if fd == listener:
                self._accept()
            elif fd == wake:
                self._wake_read.recv(64)
            else:
                self._read(self._connections[fd], requests)
        return requests

    def _note_unread(self, connection: Connection) -> None:
        """Have the next poll watch whether the client reads; thread-safe."""
        self._new_unread.append(connection)
        self.wake()

    def _flush(self) -> None:
        """Send waiting answers, and poll the connections whose answers still wait."""
        while self._new_unread:
            connection = self._new_unread.popleft()
            if not connection.closed:
                self._unread.add(connection)
                self._poll.modify(connection.fileno(), select.POLLIN | select.POLLOUT)
        for connection in [each for each in self._unread if not each.flush()]:
            self._unread.discard(connection)
            self._poll.modify(connection.fileno(), select.POLLIN)
        while sum(each.waiting_bytes for each in self._unread) > _ALL_OUTPUT_BYTES:
            largest = max(self._unread, key=lambda each: each.waiting_bytes)
            unread = largest.waiting_bytes
            largest.drop(f"all clients leave too much unread; this one leaves {unread} bytes")

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError as error:
            # The usual reason is that no file descriptor is free. New connections wait in the
            # kernel's backlog, and open connections are still served.
            self._accept_log.warning("data plane: cannot accept a connection: %s", error.strerror)
            self._poll.unregister(self._listener)
            self._accepts_at = time.monotonic() + _PAUSE_S
            return
        connection = Connection(accepted, self._note_unread)
        self._connections[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.POLLIN)

    def _resume_accepting(self) -> None:
        if self._accepts_at is not None and time.monotonic() >= self._accepts_at:
            self._accepts_at = None
            self._poll.register(self._listener, select.POLLIN)

    def _read(self, connection: Connection, requests: list[Request]) -> None:
        frames = connection.receive()
        if frames is None or connection.closed:
            self._poll.unregister(connection.fileno())
            del self._connections[connection.fileno()]
            self._unread.discard(connection)
            connection.close()
            return
        requests.extend((connection, data) for data in frames)

    def close(self) -> None:
        """Close all connections and remove the socket."""
        ends_at = time.monotonic() + _LAST_OUTPUT_S
        for connection in self._connections.values():
            connection.close(ends_at - time.monotonic())
        for end in (self._listener, self._wake_read, self._wake_write):
            end.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
