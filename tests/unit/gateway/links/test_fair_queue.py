"""Which events may wait, and whose turn is next."""

from __future__ import annotations

import random

import pytest

from fieldbrook.gateway.links import fair_queue
from fieldbrook.gateway.links.fair_queue import FairQueue
from fieldbrook.gateway.links.pending_event import PendingEvent
from fieldbrook.gateway.memory_budget import MemoryBudget


def item(publisher: int, number: int = 0, size: int = 1) -> PendingEvent:
    event = ("T", publisher, str(number), b"x" * size, 0, 0, "")
    return PendingEvent(event, lambda outcome: None, 0.0, resend=False, queue_id=publisher)


def fill(queue: FairQueue, publisher: int, size: int = 1) -> int:
    """Add events of one publisher until the queue is full; return their number."""
    count = 0
    while queue.has_space(publisher, size):
        queue.append(item(publisher, count, size))
        count += 1
    return count


def test_publishers_take_turns_and_each_ones_events_stay_in_order() -> None:
    queue = FairQueue(MemoryBudget(fair_queue.GATEWAY_BYTES))
    for number in range(4):
        queue.append(item(1, number))
    queue.append(item(2, 0))
    queue.append(item(3, 0))
    queue.append(item(2, 1))
    gone = [queue.pop().event for _ in range(len(queue))]
    assert [event[1] for event in gone] == [1, 2, 3, 1, 2, 1, 1]
    for publisher in (1, 2, 3):
        own = [int(event[2]) for event in gone if event[1] == publisher]
        assert own == sorted(own)


def test_one_publisher_alone_leaves_room_for_others() -> None:
    queue = FairQueue(MemoryBudget(fair_queue.GATEWAY_BYTES))
    assert fill(queue, 1) == fair_queue.ALONE_EVENTS
    for quiet in range(2, 102):
        assert queue.has_space(quiet, 1_000)
        queue.append(item(quiet))


@pytest.mark.parametrize("noisy", [1, 2, 3, 7])
def test_many_noisy_publishers_leave_room_for_a_quiet_one(noisy: int) -> None:
    queue = FairQueue(MemoryBudget(fair_queue.GATEWAY_BYTES))
    for _ in range(50):
        for publisher in range(noisy):
            fill(queue, publisher, size=10_000)
    assert queue.has_space(99, 10_000)


def test_a_noisy_project_leaves_room_for_another() -> None:
    budget = MemoryBudget(1 << 20)
    noisy = FairQueue(budget)
    quiet = FairQueue(budget)
    for publisher in range(100):
        fill(noisy, publisher, size=10_000)
    assert budget.used < budget.limit * 0.55
    assert fill(quiet, 1, size=10_000) > 10
    assert budget.used <= budget.limit


def test_room_is_given_back_to_the_last_byte_whatever_happens() -> None:
    chance = random.Random(1)
    budget = MemoryBudget(fair_queue.GATEWAY_BYTES)
    queues = [FairQueue(budget) for _ in range(3)]
    held = 0
    for number in range(5_000):
        queue = chance.choice(queues)
        if chance.random() < 0.55:
            publisher = chance.randrange(6)
            queue.append(item(publisher, number, chance.randrange(300)))
            held += 1
        elif queue:
            if chance.random() < 0.5:
                queue.pop()
            else:
                queue.pop_from(chance.choice(queue.first_events()).event[1])
            held -= 1
        assert sum(map(len, queues)) == held
    for queue in queues:
        while queue:
            queue.pop()
    assert budget.used == 0


@pytest.mark.parametrize("waiting", [0, 100])
def test_a_whole_batch_that_is_let_in_fits_in_its_line(waiting: int) -> None:
    queue = FairQueue(MemoryBudget(fair_queue.GATEWAY_BYTES))
    fill(queue, 1)
    for number in range(waiting):
        queue.append(item(2, number, 0))
    events = 1
    while queue.has_space_for(2, events + 1, 0):
        events += 1
    for number in range(events):
        assert queue.has_space(2, 0)
        queue.append(item(2, number, 0))
