"""How many events a project accepts in a window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.actors.project.traffic import TrafficGate
from fieldbrook.core.errors import TrafficLimitExceededError, from_wire, to_wire
from fieldbrook.core.model import EVENT, NODE_PUBLISHER, TrafficLimit

START = 1_700_000_000_000
TEN_MINUTES = 600_000
DEVICE, OTHER = 7, 8


def limit(threshold: int = 2, publisher: int = 0, duration_ms: int = TEN_MINUTES) -> TrafficLimit:
    return TrafficLimit(
        traffic_limit_id=5,
        project_id=1,
        threshold=threshold,
        duration_ms=duration_ms,
        api_type=EVENT,
        start_at=START,
        publisher_threshold=publisher,
        created_at=START,
        updated_at=START,
    )


class Gate(TrafficGate):
    """A gate over a store that is a dictionary."""

    def __init__(self, stored: dict[bytes, bytes], given_: TrafficLimit | None) -> None:
        self.stored = stored
        super().__init__(stored.get)
        self.configure(given_)

    def commit(self) -> None:
        self.stored |= self.pop_changes()


def test_without_a_limit_everything_passes_and_nothing_is_stored() -> None:
    gate = Gate({}, None)
    assert not gate.active
    assert all(gate.admit(DEVICE, START) is None for _ in range(100))
    assert gate.pop_changes() == {}


def test_what_exceeds_the_limit_is_refused_until_the_next_window() -> None:
    gate = Gate({}, limit())
    assert gate.admit(DEVICE, START) is None
    assert gate.admit(OTHER, START + 1) is None
    refusal = gate.admit(DEVICE, START + 599_001)
    assert refusal is not None
    assert (refusal.status, refusal.retry_after_s) == (429, 1)
    assert refusal.desc == "the project has reached the traffic limit of 2 events in 10m0s"
    assert refusal.key == "TrafficLimitExceededFailed"
    assert gate.admit(DEVICE, START + TEN_MINUTES) is None


def test_a_refusal_keeps_its_time_between_processes() -> None:
    gate = Gate({}, limit(threshold=1))
    gate.admit(DEVICE, START)
    refusal = gate.admit(DEVICE, START)
    assert refusal is not None
    again = from_wire(*to_wire(refusal))
    assert isinstance(again, TrafficLimitExceededError)
    assert (again.retry_after_s, again.desc) == (600, refusal.desc)


def test_a_publisher_may_have_a_limit_of_its_own() -> None:
    gate = Gate({}, limit(threshold=3, publisher=1))
    assert gate.admit(DEVICE, START) is None
    refusal = gate.admit(DEVICE, START)
    assert refusal is not None
    assert refusal.desc == "publisher 7 has reached the traffic limit of 1 events in 10m0s"
    assert gate.admit(OTHER, START) is None
    assert gate.admit(9, START) is None
    last = gate.admit(10, START)
    assert last is not None
    assert last.desc.startswith("the project")


def test_what_the_node_itself_sends_is_not_counted() -> None:
    gate = Gate({}, limit(threshold=1))
    assert all(gate.admit(NODE_PUBLISHER, START) is None for _ in range(10))
    assert gate.admit(0, START) is None, "nobody in particular is somebody outside"
    assert gate.admit(NODE_PUBLISHER, START) is None
    assert gate.admit(DEVICE, START) is not None


def test_counts_survive_a_restart_and_a_batch_that_was_not_stored_does_not_count() -> None:
    gate = Gate({}, limit(threshold=3, publisher=2))
    gate.admit(DEVICE, START)
    gate.commit()
    gate.admit(DEVICE, START)
    gate.pop_changes()
    gate.roll_back()  # the commit failed
    again = Gate(gate.stored, limit(threshold=3, publisher=2))
    assert again.admit(DEVICE, START + 5) is None
    assert again.admit(DEVICE, START + 5) is not None, "two of one publisher"
    again.commit()
    later = Gate(again.stored, limit(threshold=3, publisher=2))
    assert later.admit(OTHER, START + 6) is None
    assert later.admit(OTHER, START + 6) is not None, "three of the project"
    assert later.admit(OTHER, START + TEN_MINUTES) is None, "a new window"


def test_a_new_threshold_keeps_the_count_and_new_windows_do_not() -> None:
    gate = Gate({}, limit(threshold=1))
    gate.admit(DEVICE, START)
    gate.configure(limit(threshold=2))
    assert gate.admit(DEVICE, START) is None
    assert gate.admit(DEVICE, START) is not None
    gate.commit()
    gate.configure(limit(threshold=2, duration_ms=1_000))
    assert gate.admit(DEVICE, START + 5_000) is None


@given(
    st.integers(1, 5),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(2, 4), st.integers(0, 900), st.booleans()), max_size=60),
)
def test_no_window_ever_lets_more_through_than_it_may(
    threshold: int, publisher: int, events: list[tuple[int, int, bool]]
) -> None:
    stored: dict[bytes, bytes] = {}
    gate = Gate(stored, limit(threshold, publisher, 1_000))
    taken: dict[tuple[int, int], int] = {}
    now = START
    for who, step, restart in events:
        now += step
        window = (now - START) // 1_000
        all_, own = taken.get((window, 0), 0), taken.get((window, who), 0)
        expected = all_ < threshold and (not publisher or own < publisher)
        assert (gate.admit(who, now) is None) == expected
        if expected:
            taken[window, 0], taken[window, who] = all_ + 1, own + 1
        gate.commit()
        if restart:
            gate = Gate(stored, limit(threshold, publisher, 1_000))


def test_a_clock_that_goes_back_stops_nobody_and_frees_one_window_at_most() -> None:
    gate = Gate({}, limit(threshold=2))
    now = START + 5 * TEN_MINUTES
    assert [gate.admit(DEVICE, now) for _ in range(2)] == [None, None]
    assert gate.admit(DEVICE, now) is not None
    gate.commit()
    back = now - TEN_MINUTES
    assert [gate.admit(DEVICE, back) for _ in range(2)] == [None, None]
    refusal = gate.admit(DEVICE, back)
    assert refusal is not None
    assert 0 < (refusal.retry_after_s or 0) <= TEN_MINUTES // 1000
    before = START - 3 * TEN_MINUTES  # also before the limit was created
    assert gate.admit(DEVICE, before) is None
