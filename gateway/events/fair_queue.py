"""Fair queue of one project: first in, first out per publisher, round robin among publishers.

The limits are dynamic thresholds (Choudhury and Hahne, 1998): a publisher may queue at most as
much as is still free. A single publisher gets half of the capacity, each of n busy publishers
gets 1/(n+1), and a publisher with an empty queue always finds space. The same rule shares the
gateway's capacity among its projects.
"""

from __future__ import annotations

import collections
from typing import Generic, Protocol, TypeVar

from fieldbrook.actors.wire import WireEvent

ALONE_EVENTS = 8_192  # the limit of one publisher when no other has events waiting
ALONE_BYTES = 64 << 20
EVENTS_LIMIT = 2 * ALONE_EVENTS
BYTES_LIMIT = 2 * ALONE_BYTES
GATEWAY_BYTES = 288 << 20  # large enough that a single project reaches its own limits first
_PLENTY_EVENTS = EVENTS_LIMIT // 16
_PLENTY_BYTES = BYTES_LIMIT // 16
OVERHEAD_BYTES = 512  # memory of one event without its payload


class Queued(Protocol):
    """A queued item; `line` is the id of its queue, usually the publisher's id."""

    event: WireEvent
    line: int


Item = TypeVar("Item", bound=Queued)


class Room:
    """The queue memory that all projects of a gateway share, in bytes."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = GATEWAY_BYTES) -> None:
        self.limit = limit
        self.used = 0


class _Line(Generic[Item]):
    """The queue of one publisher."""

    __slots__ = ("bytes", "items")

    def __init__(self) -> None:
        self.items: collections.deque[Item] = collections.deque()
        self.bytes = 0


class FairQueue(Generic[Item]):
    """The waiting events of one project."""

    __slots__ = ("_bytes", "_events", "_lines", "_room", "_turns")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._lines: dict[int, _Line[Item]] = {}
        self._turns: collections.deque[_Line[Item]] = collections.deque()
        self._events = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._events

    def has_room(self, line_id: int, size: int) -> bool:
        """Whether a line has space for one event with a payload of `size` bytes."""
        if (
            self._events < _PLENTY_EVENTS
            and self._bytes + size < _PLENTY_BYTES
            and self._room.used < self._room.limit >> 2
        ):
            return True  # the code below gives the same result, but takes three times as long
        line = self._lines.get(line_id)
        events, held = (len(line.items), line.bytes) if line is not None else (0, 0)
        return events < EVENTS_LIMIT - self._events and held + size <= self._free()

    def has_room_for(self, line_id: int, events: int, size: int) -> bool:
        """Whether a line has space for `events` events with `size` payload bytes in total."""
        line = self._lines.get(line_id)
        waiting, held = (len(line.items), line.bytes) if line is not None else (0, 0)
        more, free = waiting + 2 * events, self._free()
        return more <= EVENTS_LIMIT - self._events and held + 2 * size <= free

    def _free(self) -> int:
        """Return how many bytes of payload the project may still add.

        The project's total is limited by `BYTES_LIMIT`, and by half of the memory that the
        gateway's other projects leave free.
        """
        own, room = self._bytes + self._events * OVERHEAD_BYTES, self._room
        share = (room.limit - room.used + own) // 2 - self._events * OVERHEAD_BYTES
        return min(BYTES_LIMIT, share) - self._bytes

    def append(self, item: Item) -> None:
        """Add an event at the end of its line."""
        event = item.event
        line = self._lines.get(item.line)
        if line is None:
            line = self._lines[item.line] = _Line()
            self._turns.append(line)
        line.items.append(item)
        size = len(event[3])
        line.bytes += size
        self._bytes += size
        self._events += 1
        self._room.used += size + OVERHEAD_BYTES

    def next_size(self) -> int:
        """Return the payload size of the next event of `pop`; the queue must not be empty."""
        return len(self._turns[0].items[0].event[3])

    def pop(self) -> Item:
        """Remove and return the oldest event of the next line; the queue must not be empty."""
        turns = self._turns
        line = turns[0]
        items = line.items
        item = items.popleft()
        size = len(item.event[3])
        line.bytes -= size
        self._bytes -= size
        self._events -= 1
        self._room.used -= size + OVERHEAD_BYTES
        if items:
            if len(turns) > 1:
                turns.rotate(-1)
        else:
            turns.popleft()
            del self._lines[item.line]
        return item

    def heads(self) -> list[Item]:
        """Return the oldest event of each line."""
        return [line.items[0] for line in self._turns]

    def head_of(self, line_id: int) -> Item | None:
        """Return the oldest event of one line; None when the line is empty."""
        line = self._lines.get(line_id)
        return None if line is None else line.items[0]

    def pop_of(self, line_id: int) -> Item:
        """Remove and return the oldest event of one line; the line must not be empty."""
        line = self._lines[line_id]
        self._turns.remove(line)
        self._turns.appendleft(line)
        return self.pop()
