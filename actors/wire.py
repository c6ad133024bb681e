"""The data plane: length-prefixed msgpack frames over Unix stream sockets.

A frame is a little-endian u32 length and that many bytes of msgpack. A gateway sends
frames of events, at most `CREDIT` unanswered ones; the server answers each in order, and
may answer one in parts: an answer is a list of results for the next events of the oldest
unanswered frame. The registry's commands travel the same way, and so does what a project's
handlers have sent: a frame that is a map asks for it (see `TAKE`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack

from fieldbrook.observability.logs import Sparse

log = logging.getLogger(__name__)

CREDIT = 2
FRAME_EVENTS = 256
FRAME_BYTES = 1 << 20

_LENGTH = struct.Struct("<I")
# Each read makes a buffer of this size. Above 128 KiB the C library may map and unmap it each
# time: a read of 500 bytes then costs 19 us instead of 4.
_READ_BYTES = 1 << 16
_FRAME_LIMIT = 64 << 20  # no frame of ours is near this; a larger length is not a frame
_SEND_TIMEOUT_S = 5.0
_PAUSE_S = 0.2
_LOG_INTERVAL_S = 60.0

HandlerResult = tuple[int, int, str]
"""Instance id, the handler's code or -1, and the reason when it failed."""

EventResult = tuple[HandlerResult, ...] | tuple[str, Any]
"""One result per handler that ran (none matched: empty), or an error as `errors.to_wire`
gives it when the node could not do its part, or `(REPEATED, results)`."""

REPEATED = "repeated"
"""The event was handled before: these are the results stored then, and nothing ran."""

TAKE, AFTER, DONE, TAKER, REFUSED = "take", "after", "done", "taker", "refused"
"""Keys of a request for outbox entries: how many, above which number, the numbers of those
that have been delivered, who asks (`storage.project.outbox.taker_of`), and the numbers of those
that nobody takes, with the reason.
The answer is a list of `(number, kind, target, body, event id)`, oldest first."""

WRITE_LOG = "write_log"
"""The key of a request to write the log rows and event records that wait for the next commit,
so that a reader who has seen an answer sees them, too. The answer is None, when it is done."""

NODE_COMMAND = -1
"""The publisher of what is not an event but a command to the project: its event type is the
command, its payload packed numbers: of dead letters, of instances, of places."""
REPLAY, DISCARD, CLEAR_LOG = "replay", "discard", "clear_log"
RESUME = "resume"
"""The gateway knows that events could not be stored, and has taken back those behind them:
what follows may run. Until then a project refuses messages of a broker from that gateway."""
REPLAY_EVENTS = "replay_events"
"""Its numbers are pairs: an event's place in the history, and which replay of it this is. The
answer has a result for each: how many handlers ran, -1 when one failed, and the reason."""

WireEntry = tuple[int, str, str, bytes, str]

WireEvent = tuple[str, int, str, bytes, int, int, str]
"""Event type, publisher id, event id, payload, received at (Unix ms), a sum of the flags below,
and the event's name where that is not its id (`name_of`).

The id is what people look the event up by; senders may give many events the same one. The name
tells the event from all others of its publisher."""

NAMED = 1
"""The sender named the event: with the same name, type and payload it is the same event."""
DELIVERY = 2
"""The name is the broker's, of a delivery: remember it."""
REDELIVERY = 4
"""This delivery may have come before: look it up."""
EXACT = 8
"""Only for strategies of exactly this event type, not for those of DEFAULT."""
BY_MQTT, BY_CRON, BY_API, BY_CHAIN = 16, 32, 48, 64
"""How an event came in; one over HTTP has none of these. `SOURCE_BITS` is where they lie."""
SOURCE_BITS = 112
POISON = 128
"""The project died on this event more than once: it becomes a dead letter and runs nothing."""
KEYED = 256
"""The sender gave an `Idempotency-Key`: the event's name begins with it (`key_of`)."""

KEY_ITEM = "\t"
"""Between the key of a request with many events and the place of one of them in it."""
_KEY_END = "\n"  # neither is in a key as clients send it


def keyed(key: str, name: str) -> str:
    """The name of an event that came with an `Idempotency-Key`; `name` is "" or its own."""
    return f"{key}{_KEY_END}{name}"


def item_key(key: str, index: int) -> str:
    """The key of one event of a request that came with an `Idempotency-Key`."""
    return f"{key}{KEY_ITEM}{index}"


def key_of(event: WireEvent) -> tuple[str, str]:
    """The `Idempotency-Key` of a `KEYED` event, and its own name, "" if it has none."""
    key, _, name = event[6].partition(_KEY_END)
    return key, name


def name_of(event: WireEvent) -> str:
    """What tells an event from all others of its publisher."""
    return event[6] or event[2]


pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def unpack(data: bytes) -> Any:
    """A packed value; sequences come as tuples, so that results can be dictionary keys."""
    return msgpack.unpackb(data, raw=False, use_list=False, strict_map_key=False)


def frame(data: bytes) -> bytes:
    """Put the length in front."""
    return _LENGTH.pack(len(data)) + data


def project_socket(run_dir: Path, project_id: int, generation: int) -> Path:
    """Where a project's process serves. A Unix socket's path ends at 108 bytes: short names."""
    return run_dir / f"p{project_id:x}.{generation}"


def project_sockets(run_dir: Path, project_id: int) -> list[Path]:
    """Where a project's process may serve now: one that was killed leaves its socket."""
    return sorted(run_dir.glob(f"p{project_id:x}.*"))


class FrameReader:
    """Cuts a byte stream into frames."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames completed by `data`.

        Raises:
            ValueError: a length no frame of ours has; the stream is not ours.
        """
        buffer = self._buffer
        if not buffer and len(data) >= 4 and _LENGTH.unpack_from(data)[0] == len(data) - 4:
            return [data[4:]]  # the common case: one read is one frame
        buffer += data
        frames = []
        while len(buffer) >= 4:
            length = _LENGTH.unpack_from(buffer)[0]
            if length > _FRAME_LIMIT:
                raise ValueError(f"frame of {length} bytes")
            if len(buffer) < 4 + length:
                break
            frames.append(bytes(memoryview(buffer)[4 : 4 + length]))
            del buffer[: 4 + length]
        return frames


class Peer:
    """One connection of a FrameServer."""

    __slots__ = ("_socket", "closed", "reader")

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(_SEND_TIMEOUT_S)
        self._socket = connection
        self.reader = FrameReader()
        self.closed = False

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._socket.fileno()

    def receive(self) -> list[bytes] | None:
        """The frames that one read completes; None when the other side is gone."""
        try:
            data = self._socket.recv(_READ_BYTES)
            return self.reader.feed(data) if data else None
        except (OSError, ValueError) as error:
            log.warning("data plane: connection dropped: %s", error)
            return None

    def answer(self, value: Any) -> None:
        """Send one answer. A side that takes none for 5 s is dropped: its frames stay
        unanswered, and it knows what that means."""
        if self.closed:
            return
        try:
            self._socket.sendall(frame(pack(value)))
        except OSError as error:
            log.warning("data plane: answer not taken: %s", error)
            self.closed = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self._socket.close()


Round = list[tuple[Peer, bytes]]


class FrameServer:
    """Serves frames in one thread: every poll hands over all frames that arrived.

    Args:
        path: the socket's file, 0600; an old one is replaced.
        on_round: called with the frames of one poll, in order per connection; answers them.
        on_quiet: called when `tick_s` passed without a frame.
        tick_s: how long to wait for a frame.
    """

    def __init__(
        self,
        path: Path,
        on_round: Callable[[Round], None],
        on_quiet: Callable[[], None] = lambda: None,
        tick_s: float = 1.0,
    ) -> None:
        self._path = path
        self._on_round = on_round
        self._on_quiet = on_quiet
        self._tick_ms = max(1, int(tick_s * 1000))
        self._peers: dict[int, Peer] = {}
        self._poll = select.poll()
        self._stopping = False
        self._retiring = False
        self._flood = Sparse(log, _LOG_INTERVAL_S)
        self._listens_at: float | None = None  # while it does not listen: when it does again
        self._wake_read, self._wake_write = socket.socketpair()
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

    @property
    def connected(self) -> int:
        """How many connections are open."""
        return len(self._peers)

    def stop(self) -> None:
        """Make `serve` return after the round it is in; callable from any thread."""
        self._stopping = True
        self._wake()

    def retire(self) -> None:
        """Make `serve` return once nobody is connected; callable from any thread."""
        self._retiring = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it may have seen the flag already and be closed
            self._wake_write.send(b"!")

    def serve(self) -> None:
        """Serve until `stop`, or `retire` and the last disconnection."""
        listener, wake = self._listener.fileno(), self._wake_read.fileno()
        while not (self._stopping or (self._retiring and not self._peers)):
            ready = self._poll.poll(self._tick_ms)
            self._listen_again()
            round_: Round = []
            for fd, _ in ready:
                if fd == listener:
                    self._accept()
                elif fd == wake:
                    self._wake_read.recv(64)
                else:
                    self._read(self._peers[fd], round_)
            if round_:
                self._on_round(round_)
            elif not ready:
                self._on_quiet()
        self._close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            # No descriptor is free. Who connects waits in the system's queue; the connections
            # there are go on.
            self._flood.warning("data plane: cannot accept a connection: %s", error.strerror)
            self._poll.unregister(self._listener)
            self._listens_at = time.monotonic() + _PAUSE_S
            return
        peer = Peer(connection)
        self._peers[peer.fileno()] = peer
        self._poll.register(peer.fileno(), select.POLLIN)

    def _listen_again(self) -> None:
        if self._listens_at is not None and time.monotonic() >= self._listens_at:
            self._listens_at = None
            self._poll.register(self._listener, select.POLLIN)

    def _read(self, peer: Peer, round_: Round) -> None:
        frames = peer.receive()
        if frames is None or peer.closed:
            self._poll.unregister(peer.fileno())
            del self._peers[peer.fileno()]
            peer.close()
            return
        round_.extend((peer, data) for data in frames)

    def _close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        for end in (self._listener, self._wake_read, self._wake_write):
            end.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
