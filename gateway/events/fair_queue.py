"""Events that wait for one project: in order for each publisher, in turn among them.

How much may wait follows from how much room is free ("dynamic thresholds", Choudhury and
Hahne, 1998): nobody may hold more than is left for the others. One alone gets half of the
room, each of n that want more gets 1/(n+1) of it, and whoever has nothing waiting always
finds some. That holds twice: for the publishers of a project, and for the projects of a
gateway.
"""

from __future__ import annotations

import collections
from typing import Generic, Protocol, TypeVar

from fieldbrook.actors.wire import WireEvent

ALONE_EVENTS = 8_192  # what one publisher may have waiting when nobody else has
ALONE_BYTES = 64 << 20
EVENTS_LIMIT = 2 * ALONE_EVENTS
BYTES_LIMIT = 2 * ALONE_BYTES
GATEWAY_BYTES = 288 << 20  # one project alone is bound by its own limits
_PLENTY_EVENTS = EVENTS_LIMIT // 16
_PLENTY_BYTES = BYTES_LIMIT // 16
OVERHEAD_BYTES = 512  # of an event in memory, besides its payload


class Queued(Protocol):
    """What waits. `line` is that of its publisher, by the publisher's id, or another one."""

    event: WireEvent
    line: int


Item = TypeVar("Item", bound=Queued)


class Room:
    """What all projects of a gateway may have waiting, in bytes."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = GATEWAY_BYTES) -> None:
        self.limit = limit
        self.used = 0


class _Line(Generic[Item]):
    """What one publisher has waiting."""

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
        """Whether an event with a payload of so many bytes may be added to a line."""
        if (
            self._events < _PLENTY_EVENTS
            and self._bytes + size < _PLENTY_BYTES
            and self._room.used < self._room.limit >> 2
        ):
            return True  # as what follows would find, at a third of the time
        line = self._lines.get(line_id)
        events, held = (len(line.items), line.bytes) if line is not None else (0, 0)
        return events < EVENTS_LIMIT - self._events and held + size <= self._free()

    def has_room_for(self, line_id: int, events: int, size: int) -> bool:
        """Whether so many events with so many bytes together may be added to a line."""
        line = self._lines.get(line_id)
        waiting, held = (len(line.items), line.bytes) if line is not None else (0, 0)
        more, free = waiting + 2 * events, self._free()
        return more <= EVENTS_LIMIT - self._events and held + 2 * size <= free

    def _free(self) -> int:
        """How many bytes of payload the project may still add: what is its own, or half of what
        the gateway's other projects leave, has a part that is not used."""
        own, room = self._bytes + self._events * OVERHEAD_BYTES, self._room
        share = (room.limit - room.used + own) // 2 - self._events * OVERHEAD_BYTES
        return min(BYTES_LIMIT, share) - self._bytes

    def append(self, item: Item) -> None:
        """Add an event behind the others of its line."""
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
        """The payload's size of the event that `pop` gives; there must be one."""
        return len(self._turns[0].items[0].event[3])

    def pop(self) -> Item:
        """The oldest event of the line whose turn it is; there must be one."""
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
        """The oldest event of each line."""
        return [line.items[0] for line in self._turns]

    def head_of(self, line_id: int) -> Item | None:
        """The oldest event of one line."""
        line = self._lines.get(line_id)
        return None if line is None else line.items[0]

    def pop_of(self, line_id: int) -> Item:
        """The oldest event of one line; there must be one."""
        line = self._lines[line_id]
        self._turns.remove(line)
        self._turns.appendleft(line)
        return self.pop()
