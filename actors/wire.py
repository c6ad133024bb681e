"""The data plane: length-prefixed msgpack frames over Unix stream sockets.

A frame is a little-endian u32 length and that many bytes of msgpack. A gateway sends
a worker frames of `(project id, body)` pairs. A body is a list of events, or a map that requests
the outbox entries of the project (see `LIMIT`) or a checkpoint (`WRITE_LOG`). Each project has at
most `CREDIT` unanswered lists of events on a connection. A frame of answers has
`(project id, answer)` pairs; the answers of one project come in the order of its bodies. An answer
to a list of events has results for the next events of the oldest unanswered list. So a list may be
answered in parts. Commands to the registry use the same frames.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import msgpack

CREDIT = 2
FRAME_EVENTS = 256
FRAME_BYTES = 1 << 20

_LENGTH = struct.Struct("<I")
_FRAME_LIMIT = 64 << 20  # bytes; real frames are far smaller, so a larger length is garbage

HandlerResult = tuple[int, int, str]
"""Instance id, the handler's return code (-1 when it failed), and the reason of the failure."""

EventResult = tuple[HandlerResult, ...] | tuple[str, Any]
"""The outcome of an event: one result per handler that ran (empty if none matched); or an error in
the form of `errors.to_wire` if the node failed; or `(REPEATED, results)` for a duplicate event."""

REPEATED = "repeated"
"""Marks a duplicate event: the results were stored the first time, and no handler ran now."""

LIMIT, AFTER, DONE, CONSUMER, REFUSED = "limit", "after", "done", "consumer", "refused"
"""Keys of a request for outbox entries.

`LIMIT` is the largest number of entries to return, all with numbers above `AFTER`. `CONSUMER` is
the process that asks (`storage.project.outbox.consumer_of`). `DONE` has the numbers of delivered
entries, `REFUSED` the numbers and reasons of entries that cannot be delivered. The answer is a list
of `(number, kind, target, body, event id)`, oldest first; an entry of a traced event has its
context (`span.Context`) as a sixth item. While the store fails, the answer is `NOT_HERE`; the
project announces its entries again when the store works again."""

WRITE_LOG = "write_log"
"""The key of a request for a checkpoint now: batches in memory are written to the project's store.
So a client that has got the answer to an event can read what the event has stored. The answer to
the request, after the checkpoint, is the state of the project's trace (`Tracing.state`), or
None."""
FOLLOWED = "followed"
"""The value of `WRITE_LOG` if the request is only for dashboard pages that follow the project. Then
a project with many events writes less often than requested (`actors.project.live_checkpoints`)."""

NOT_HERE = "not_here"
"""The answer to a body for a project that the worker does not run: no event of the body ran."""
LOST = "lost"
"""The answer to a body for a project whose actor has failed: the outcome of the events of this
body that have no result yet is unknown.

Each unanswered body gets one such answer. A gateway may have sent further bodies of the project
before it reads `NOT_HERE` or `LOST`, and they must not run before the returned events. So after
either, the worker answers `NOT_HERE` to all later lists of events of this project on this
connection, until one that begins with the command `RESUME`."""

NODE_COMMAND = -1
"""Publisher id of a frame entry that is a command to the project instead of an event.

The event type is the command. The payload is packed numbers: of dead letters (`REPLAY`,
`DISCARD`), of instances (`CLEAR_LOG`) or of the event history (`REPLAY_EVENTS`). The payload of
`WRITE_KEY` is described at `WRITE_KEY`."""
REPLAY, DISCARD, CLEAR_LOG = "replay", "discard", "clear_log"
WRITE_KEY = "write_key"
"""Command to change a key of an applet. Its payload is the id under which the applet's keys are
stored (`kv.owner`), the key, and the new value, or None to delete the key. The answer has one
result, whose code is 1 when the key existed before and 0 otherwise."""
TRACE = "trace"
"""Command that starts a trace and replaces the present one; its payload has the fields of a
`TraceOrder`. With an empty payload it ends the present trace."""
RESUME = "resume"
"""Command that ends the refusal of events after a failure. The refusal keeps the order of events.

After a failure to store events the project refuses all later MQTT events of the same gateway, and
after `NOT_HERE` or `LOST` the worker refuses all. When the gateway has got back all refused events,
it sends this command in a body of its own. From then on events may run again."""
REPLAY_EVENTS = "replay_events"
"""Command to replay events of the history. Its numbers are pairs: the event's place in the
history, and the count of this replay. The answer has one result per event: the number of
handlers that ran (-1 when one failed) and the reason of the failure."""

WireEntry = tuple[int, str, str, bytes, str]

WireEvent = tuple[str, int, str, bytes, int, int, str]
"""An event: type, publisher id, event id, payload, time of reception (Unix ms), a sum of the flags
below, and the event's name if it differs from the id (`name_of`).

Users look events up by the id, which a sender may use for many events. The name identifies the
event among all events of its publisher and is the key of deduplication."""


def with_context(event: WireEvent, context: bytes) -> WireEvent:
    """Return an event as a traced one: an eighth item has the context of its span
    (`span.Context`)."""
    return cast(WireEvent, (*event[:7], context))


def with_flags(event: WireEvent, flags: int) -> WireEvent:
    """Return the event with other flags."""
    return (*event[:5], flags, *event[6:])


def context_of(event: WireEvent) -> bytes:
    """The context of an event that is traced, b"" for others."""
    items: Any = event
    return items[7] if len(items) > 7 else b""


NAMED = 1
"""The sender named the event: an event with the same name, type and payload is a duplicate."""
DELIVERY = 2
"""The event's name is the name of an MQTT delivery (`delivered`): store it for deduplication."""
REDELIVERY = 4
"""The broker may have delivered this message before: look up whether its name is stored."""
EXACT = 8
"""Match only strategies of exactly this event type, not those of DEFAULT."""
BY_MQTT, BY_CRON, BY_API, BY_CHAIN = 16, 32, 48, 64
"""The source of an event; an event over HTTP has none of these flags. `SOURCE_BITS` is their
mask."""
SOURCE_BITS = 112
POISON = 128
"""The project's worker died on this event more than once: it becomes a dead letter and does not
run again."""
RESENT = 512
"""The gateway has sent this event before, and the outcome is unknown: look up the unique part of
its name (`delivery_of`). Only events with `DELIVERY` may have this flag."""
KEYED = 256
"""The sender gave an `Idempotency-Key`: the event's name begins with it (`key_of`)."""

KEY_ITEM = "\t"
"""Separates the key of a batch request from the index of one of its events."""
_KEY_END = "\n"  # the keys of clients contain neither `KEY_ITEM` nor this


def keyed(key: str, name: str) -> str:
    """The name of an event with an `Idempotency-Key`; `name` is the event's own name or ""."""
    return f"{key}{_KEY_END}{name}"


def item_key(key: str, index: int) -> str:
    """The key of one event of a batch request with an `Idempotency-Key`."""
    return f"{key}{KEY_ITEM}{index}"


def delivered(name: str, unique: str) -> str:
    """The name of an MQTT delivery.

    Args:
        name: the name that the sender gave the message. The sender may use it again for another
            message.
        unique: a text that no other event has.
    """
    return f"{name}{_KEY_END}{unique}"


def delivery_of(event: WireEvent) -> tuple[str, str]:
    """Return the sender's name of a `DELIVERY`, and its unique part; see `delivered`."""
    name, _, unique = name_of(event).partition(_KEY_END)
    return name, unique or name


def key_of(event: WireEvent) -> tuple[str, str]:
    """The `Idempotency-Key` of a `KEYED` event, and the event's own name, "" if it has none."""
    key, _, name = event[6].partition(_KEY_END)
    return key, name


def name_of(event: WireEvent) -> str:
    """The name that identifies an event among all events of its publisher."""
    return event[6] or event[2]


def entry_context(entry: WireEntry) -> bytes:
    """The context of an outbox entry of a traced event, b"" for others."""
    items: Any = entry
    return items[5] if len(items) > 5 else b""


pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def unpack(data: bytes) -> Any:
    """Decode a packed value; sequences become tuples, so that results can be dictionary keys."""
    return msgpack.unpackb(data, raw=False, use_list=False, strict_map_key=False)


def frame(data: bytes) -> bytes:
    """Make a frame: the length, then `data`."""
    return _LENGTH.pack(len(data)) + data


def worker_socket(run_dir: Path, name: str, generation: int) -> Path:
    """The socket of a worker. The name is short: Unix socket paths have 108 bytes."""
    return run_dir / f"w{name}.{generation}"


def worker_sockets(run_dir: Path) -> list[Path]:
    """Return the existing sockets of all workers, including those of killed processes."""
    return sorted(run_dir.glob("w*.*"))


class FrameReader:
    """Splits a byte stream into frames."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes; return the frames that are complete now.

        Raises:
            ValueError: a length is above the limit, so the bytes are not frames.
        """
        buffer = self._buffer
        if not buffer and len(data) >= 4 and _LENGTH.unpack_from(data)[0] == len(data) - 4:
            return [data[4:]]  # the common case: one read is one frame
        buffer += data
        frames = []
        while len(buffer) >= 4:
            length = _LENGTH.unpack_from(buffer)[0]
            if length > _FRAME_LIMIT:
                raise ValueError(f"a frame of {length} bytes exceeds the limit")
            if len(buffer) < 4 + length:
                break
            frames.append(bytes(memoryview(buffer)[4 : 4 + length]))
            del buffer[: 4 + length]
        return frames


class Requester(Protocol):
    """The sender of a request to a project, which gets the answer."""

    @property
    def closed(self) -> bool:
        """Whether answers can no longer be delivered."""
        ...

    def answer(self, value: Any) -> None:
        """Give the next answer."""
