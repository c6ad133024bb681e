"""Fair queue of one project: first in, first out per publisher, round robin among publishers.

The limits are dynamic thresholds (Choudhury and Hahne, 1998): a publisher may queue at most as
much as is still free. A single publisher gets half of the capacity, each of n busy publishers
gets 1/(n+1), and a publisher with an empty queue always finds space. The same rule shares the
gateway's capacity among its projects.
"""

from __future__ import annotations

import collections

from fieldbrook.gateway.links.pending_event import PendingEvent
from fieldbrook.gateway.memory_budget import MemoryBudget

ALONE_EVENTS = 8_192  # the limit of one publisher if no other publisher has waiting events
ALONE_BYTES = 64 << 20
EVENTS_LIMIT = 2 * ALONE_EVENTS
BYTES_LIMIT = 2 * ALONE_BYTES
GATEWAY_BYTES = 288 << 20  # large enough that a single project reaches its own limits first
_AMPLE_EVENTS = EVENTS_LIMIT // 16
_AMPLE_BYTES = BYTES_LIMIT // 16
OVERHEAD_BYTES = 512  # memory of one event without its payload


class _PublisherQueue:
    """The queue of one publisher."""

    __slots__ = ("bytes", "items")

    def __init__(self) -> None:
        self.items: collections.deque[PendingEvent] = collections.deque()
        self.bytes = 0


class FairQueue:
    """The waiting events of one project; `events` is their number (read-only)."""

    __slots__ = ("_budget", "_bytes", "_queues", "_turns", "events")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._queues: dict[int, _PublisherQueue] = {}
        self._turns: collections.deque[_PublisherQueue] = collections.deque()
        self.events = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self.events

    def has_space(self, queue_id: int, size: int) -> bool:
        """Return whether a queue has space for one event with a payload of `size` bytes."""
        if (
            self.events < _AMPLE_EVENTS
            and self._bytes + size < _AMPLE_BYTES
            and self._budget.used < self._budget.limit >> 2
        ):
            return True  # the code below gives the same result, but takes three times as long
        queue = self._queues.get(queue_id)
        events, held = (len(queue.items), queue.bytes) if queue is not None else (0, 0)
        return events < EVENTS_LIMIT - self.events and held + size <= self._free()

    def has_space_for(self, queue_id: int, events: int, size: int) -> bool:
        """Return whether a queue has space for `events` events with `size` payload bytes in
        total."""
        queue = self._queues.get(queue_id)
        waiting, held = (len(queue.items), queue.bytes) if queue is not None else (0, 0)
        more, free = waiting + 2 * events, self._free()
        return more <= EVENTS_LIMIT - self.events and held + 2 * size <= free

    def _free(self) -> int:
        """Return how many bytes of payload the project may still add.

        The project's total is limited by `BYTES_LIMIT`, and by half of the memory that the
        gateway's other projects leave free.
        """
        own, budget = self._bytes + self.events * OVERHEAD_BYTES, self._budget
        share = (budget.limit - budget.used + own) // 2 - self.events * OVERHEAD_BYTES
        return min(BYTES_LIMIT, share) - self._bytes

    def append(self, item: PendingEvent) -> None:
        """Add an event at the end of its queue."""
        queue = self._queues.get(item.queue_id)
        if queue is None:
            queue = self._queues[item.queue_id] = _PublisherQueue()
            self._turns.append(queue)
        queue.items.append(item)
        self._count(queue, item)

    def put_back(self, item: PendingEvent) -> None:
        """Put an event that was popped back at the head of its queue."""
        queue = self._queues.get(item.queue_id)
        if queue is None:
            queue = self._queues[item.queue_id] = _PublisherQueue()
            self._turns.appendleft(queue)
        queue.items.appendleft(item)
        self._count(queue, item)

    def _count(self, queue: _PublisherQueue, item: PendingEvent) -> None:
        size = len(item.event[3])
        queue.bytes += size
        self._bytes += size
        self.events += 1
        self._budget.used += size + OVERHEAD_BYTES

    def next_size(self) -> int:
        """Return the payload size of the event that `pop` would return; the queue must not be
        empty."""
        return len(self._turns[0].items[0].event[3])

    def pop(self) -> PendingEvent:
        """Remove and return the oldest event of the next queue; the queue must not be empty."""
        turns = self._turns
        queue = turns[0]
        items = queue.items
        item = items.popleft()
        size = len(item.event[3])
        queue.bytes -= size
        self._bytes -= size
        self.events -= 1
        self._budget.used -= size + OVERHEAD_BYTES
        if items:
            if len(turns) > 1:
                turns.rotate(-1)
        else:
            turns.popleft()
            del self._queues[item.queue_id]
        return item

    def first_events(self) -> list[PendingEvent]:
        """Return the oldest event of each queue."""
        return [queue.items[0] for queue in self._turns]

    def first_in(self, queue_id: int) -> PendingEvent | None:
        """Return the oldest event of one queue; None when it is empty."""
        queue = self._queues.get(queue_id)
        return None if queue is None else queue.items[0]

    def pop_from(self, queue_id: int) -> PendingEvent:
        """Remove and return the oldest event of one queue, which must not be empty."""
        queue = self._queues[queue_id]
        self._turns.remove(queue)
        self._turns.appendleft(queue)
        return self.pop()
