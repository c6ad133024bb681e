"""Events that share an instance: each has the outcome it would have alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import StoreError
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.abi import LOG_INFO, SOURCE_GUEST
from fieldbrook.wasm.run import Run
from tests.contract.hosts import harness as h
from tests.contract.hosts.harness import Outcome


def one_by_one(
    name: str,
    handler: str,
    payloads: Sequence[bytes],
    *,
    kind: str = "reference",
    limits: Limits = h.LIMITS,
) -> tuple[list[Outcome], dict[bytes, bytes]]:
    """Return the outcome of each event in an instance of its own, and the final store."""
    store: dict[bytes, bytes] = {}
    outcomes = []
    for payload in payloads:
        outcomes.append(h.run(kind, name, handler, payload, stored=store, limits=limits))
        if not outcomes[-1].reason:
            store.update(outcomes[-1].writes)
    return outcomes, store


def together(
    name: str,
    handler: str,
    payloads: Sequence[bytes],
    *,
    limits: Limits = h.LIMITS,
    stored: Mapping[bytes, bytes] | None = None,
) -> tuple[list[Outcome], dict[bytes, bytes], list[int]]:
    """Return the same for batches as a project forms them, and how many events each batch
    settled."""
    host = h.host("raw", name, limits)
    store = dict(stored or {})
    runs = [Run(payload, read=store.get) for payload in payloads]
    outcomes: list[Outcome] = []
    settled: list[int] = []
    while len(outcomes) < len(runs):
        at = len(outcomes)
        done = host.run_batch(handler, runs[at:])
        settled.append(len(done))
        done = done or [host.run(handler, runs[at])]
        for (code, reason), run in zip(done, runs[at:], strict=False):
            outcomes.append(Outcome(code, reason, run.writes, run.logs))
            if not reason:
                store.update(run.writes)
    return outcomes, store, settled


@given(st.lists(st.binary(max_size=300), max_size=40), st.sampled_from(["echo", "log_payload"]))
def test_events_in_one_instance_have_the_outcomes_they_have_alone(
    payloads: list[bytes], handler: str
) -> None:
    alone, store = one_by_one("guest", handler, payloads)
    outcomes, stored, settled = together("guest", handler, payloads)
    assert (outcomes, stored) == (alone, store)
    assert settled == ([len(payloads)] if payloads else [])


_calls = st.tuples(
    st.sampled_from([h.GET_DB, h.GET_ENV]),
    st.integers(0, 32),
    # Cells lie where no event reads: what one leaves must not change another.
    st.integers(0, 32),
    *[st.integers(1_100, 2_000)] * 2,
)
_asks = st.tuples(
    st.sampled_from([h.GET_DATA, h.GET_EVENT_TYPE]),
    st.integers(0, 2),
    *[st.integers(1_100, 2_000)] * 2,
)
_reads = st.tuples(
    st.sampled_from([h.LOG, h.SET_DATA]), st.integers(0, 8), st.integers(0, 32), st.integers(0, 32)
)
_wild = st.tuples(st.sampled_from([h.LOG, h.SET_DATA]), st.just(0), st.just(1 << 31), st.just(9))


@given(
    st.lists(st.lists(st.one_of(_calls, _asks, _reads, _wild), max_size=6), min_size=1, max_size=12)
)
def test_codes_and_records_of_every_event_are_those_it_has_alone(
    events: list[list[tuple[int, ...]]],
) -> None:
    payloads = [h.calls(*records) for records in events]
    limits = Limits(memory_bytes=h.MEMORY_BYTES, log_bytes=2048)
    alone, _ = one_by_one("driver", "start", payloads, limits=limits)
    outcomes, _, _ = together("driver", "start", payloads, limits=limits)
    for ours, theirs in zip(outcomes, alone, strict=True):
        # Addresses differ, so the image of the memory does.
        assert ours.writes.get(b"codes") == theirs.writes.get(b"codes")
        assert (ours.code, ours.reason, ours.logs) == (theirs.code, theirs.reason, theirs.logs)


def test_an_event_sees_what_earlier_ones_of_its_batch_wrote() -> None:
    outcomes, store, settled = together("guest", "count_twice", [b""] * 20)
    assert [outcome.code for outcome in outcomes] == list(range(2, 42, 2))
    assert store[b"counter"] == (40).to_bytes(4, "little")
    assert settled == [20]


def test_a_trap_costs_only_its_own_event() -> None:
    good = h.calls((h.LOG, 4, 0, 5))
    bad = h.calls((h.LOG, 4, 0, 5), (h.ALLOC_MODE, h.TRAPS), (h.GET_DATA, 0, 1032, 1036), (99,))
    alone, _ = one_by_one("driver", "start", [bad])
    # In the batch, the mode of `alloc` lasts longer than its event: the next events fail there and
    # succeed in instances of their own.
    outcomes, _, settled = together("driver", "start", [good, good, bad, good, good])
    assert [outcome.code for outcome in outcomes] == [0, 0, alone[0].code, 0, 0]
    assert outcomes[2].logs == alone[0].logs
    assert sum(settled) < 5
    record = (LOG_INFO, SOURCE_GUEST, "codes")
    assert [outcome.logs for outcome in outcomes if outcome.logs != alone[0].logs] == [[record]] * 4


def test_a_trapping_handler_fails_every_event_with_its_reason() -> None:
    alone, _ = one_by_one("guest", "trap", [b""] * 8)
    outcomes, store, settled = together("guest", "trap", [b""] * 8)
    assert outcomes == alone
    assert store == {}
    assert sum(settled) == 0


def test_an_event_that_loops_is_ended_by_its_own_deadline_and_the_others_run() -> None:
    spin = h.calls((h.ALLOC_MODE, h.LOOPS), (h.GET_DATA, 0, 1032, 1036))
    good = h.calls((h.LOG, 4, 0, 5))
    outcomes, _, _ = together("driver", "start", [good, spin, good], limits=h.AMPLE)
    late = "deadline of 1000 ms exceeded, in alloc, called by perform"
    assert [outcome.reason for outcome in outcomes] == ["", late, ""]


def test_budgets_are_those_of_each_event() -> None:
    limits = Limits(memory_bytes=h.MEMORY_BYTES, host_calls=6)
    within, over = h.calls((h.LOG, 4, 0, 5)), h.calls(*[(h.LOG, 4, 0, 5)] * 4)
    payloads = [within] * 10 + [over] + [within] * 3
    alone, _ = one_by_one("driver", "start", payloads, limits=limits)
    outcomes, _, _ = together("driver", "start", payloads, limits=limits)
    assert [outcome.reason for outcome in outcomes] == [outcome.reason for outcome in alone]
    assert [outcome.logs for outcome in outcomes] == [outcome.logs for outcome in alone]
    assert outcomes[10].reason == "host call budget of 6 calls exceeded"


def test_more_payload_than_the_stage_holds_takes_several_batches() -> None:
    payloads = [bytes([n]) * 400_000 for n in range(9)]
    limits = Limits(memory_bytes=h.MEMORY_BYTES)
    outcomes, store, settled = together("guest", "echo", payloads, limits=limits)
    assert [outcome.writes[b"payload"] for outcome in outcomes] == payloads
    assert store[b"payload"] == payloads[-1]
    assert len(settled) > 1


def test_more_log_than_the_stage_holds_is_kept_in_order() -> None:
    records = [(h.LOG, 4, 0, 1024 + n) for n in range(200)]
    payloads = [h.calls(*records)] * 15
    limits = Limits(memory_bytes=h.MEMORY_BYTES, log_bytes=1 << 20)
    alone, _ = one_by_one("driver", "start", payloads[:1], kind="raw", limits=limits)
    outcomes, _, _ = together("driver", "start", payloads, limits=limits)
    lengths = [len(text) for _, _, text in alone[0].logs]
    assert [[len(text) for _, _, text in outcome.logs] for outcome in outcomes] == [lengths] * 15


def test_a_store_that_fails_fails_the_event_that_read_it_and_no_other() -> None:
    host = h.host("raw", "guest")

    def unreadable(_key: bytes) -> bytes | None:
        raise StoreError(reason="unreadable")

    runs = [Run(b"") for _ in range(5)]
    runs[0].read = unreadable
    assert host.run_batch("count_twice", runs) == []
    with pytest.raises(StoreError):
        host.run("count_twice", runs[0])
    assert host.run_batch("count_twice", runs[1:]) == [(2, ""), (4, ""), (6, ""), (8, "")]


@pytest.mark.parametrize("name", ["no_alloc", "start_section", "start_trap"])
def test_a_module_that_cannot_share_an_instance_is_left_to_run_alone(name: str) -> None:
    host = h.host("raw", name)
    handler = host.handlers[0]
    assert host.run_batch(handler, [Run(b"a"), Run(b"b")]) == []
    assert host.run_batch(handler, [Run(b"a"), Run(b"b")]) == []


def test_initialize_runs_once_for_a_batch() -> None:
    alone, _ = one_by_one("initialize", h.host("raw", "initialize").handlers[0], [b""])
    handler = h.host("raw", "initialize").handlers[0]
    outcomes, _, settled = together("initialize", handler, [b""] * 3)
    assert outcomes[0] == alone[0]
    assert settled == [3]


def test_a_handler_that_is_not_exported_is_left_to_run() -> None:
    assert h.host("raw", "guest").run_batch("nobody", [Run(b"")]) == []
