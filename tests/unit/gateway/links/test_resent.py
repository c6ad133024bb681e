"""Events with an unknown outcome are sent again with an id by which their project recognises
them."""

from __future__ import annotations

from fieldbrook.actors.project.execution.deduplication import is_certainly_new, remember
from fieldbrook.actors.wire import DELIVERY, REDELIVERY, RESENT, WireEvent, delivered
from fieldbrook.core.errors import StorageFullError, UnavailableError
from fieldbrook.gateway.links.failed_bodies import FailedBodies
from fieldbrook.gateway.links.fair_queue import GATEWAY_BYTES, FairQueue
from fieldbrook.gateway.links.pending_event import PendingEvent, Settled
from fieldbrook.gateway.links.suspects import Suspects
from fieldbrook.gateway.links.worker_link import Body
from fieldbrook.gateway.memory_budget import MemoryBudget


class Store:
    """The part of a project's store that stores deliveries."""

    def __init__(self) -> None:
        self.deliveries: dict[str, None] = {}
        self.outcomes: dict[bytes, object] = {}

    def was_delivered(self, name: str) -> bool:
        return name in self.deliveries


def event(event_id: str, name: str, kind: int = DELIVERY) -> WireEvent:
    return ("T", 1, event_id, b"x", 0, kind, name)


def test_an_event_of_unknown_outcome_is_marked_when_it_is_sent_again() -> None:
    suspects = Suspects()
    failed = FailedBodies(FairQueue(MemoryBudget(GATEWAY_BYTES)), suspects)
    events = [event("id-1", "name"), event("id-2", "", kind=0)]
    pending = [PendingEvent(each, lambda _: None, 1e9, True, 1) for each in events]
    failed.add_lost(Body(pending, 2, small=True, suspects=False))
    failed.take_back(False, [])
    kinds: dict[str, int] = {}
    while suspects.groups:
        kinds |= {again.event[2]: again.event[5] for again in suspects.take()}
    assert kinds == {"id-1": DELIVERY | RESENT, "id-2": 0}


def test_only_the_same_event_is_known_when_its_name_comes_again() -> None:
    store = Store()
    remember(store, event("ESP32", delivered("name", "1")), ())  # type: ignore[arg-type]
    remember(store, event("id-9", ""), ())  # type: ignore[arg-type]
    for again, is_new in (
        (event("ESP32", delivered("name", "1"), DELIVERY | RESENT), False),
        # Another message with the same label, packet id, topic and payload.
        (event("ESP32", delivered("name", "2")), True),
        (event("ESP32", delivered("name", "2"), DELIVERY | RESENT), True),
        # The client marks a repeated message.
        (event("id-3", delivered("name", "3"), DELIVERY | REDELIVERY), False),
        (event("id-3", delivered("other", "3"), DELIVERY | REDELIVERY), True),
        (event("id-9", "", DELIVERY | RESENT), False),
        (event("id-8", "", DELIVERY | RESENT), True),
    ):
        assert is_certainly_new(store, again) is is_new  # type: ignore[arg-type]


def test_no_event_behind_one_of_qos_0_overtakes_an_event_that_could_not_be_stored() -> None:
    queue = FairQueue(MemoryBudget(GATEWAY_BYTES))
    failed = FailedBodies(queue, Suspects())
    first, *waiting = (
        PendingEvent(event(f"id-{number}", ""), lambda _: None, 0.0, qos > 0, 1)
        for number, qos in enumerate([1, 0, 1, 0, 1])
    )
    for pending in waiting:
        queue.append(pending)
    settled: Settled = []
    assert failed.withdraw([(first, StorageFullError(reason="full"))], settled)
    assert [pending for pending, _ in settled] == [waiting[1], waiting[3]]
    assert all(isinstance(outcome, UnavailableError) for _, outcome in settled)
    assert [queue.pop(), queue.pop()] == [waiting[0], waiting[2]]
    assert not queue
