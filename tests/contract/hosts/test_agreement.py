"""Whatever a guest does, all hosts give the same results, and none fails."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from fieldbrook.wasm.limits import PAGE_BYTES, Limits
from tests.contract.hosts import harness as h

_SIZE = 2 * PAGE_BYTES
_numbers = st.one_of(
    st.integers(0, 64),
    st.integers(_SIZE - 64, _SIZE + 64),
    st.integers(0, _SIZE),
    st.integers(0, 0xFFFF_FFFF),
    st.integers(0xFFFF_FF00, 0xFFFF_FFFF),
)
_functions = st.integers(h.LOG, h.TRACE)
_calls = st.tuples(_functions, _numbers, _numbers, _numbers, _numbers)
# A pointer of any kind and a size that fits more often than not.
_ranges = st.tuples(st.sampled_from([h.LOG, h.SET_DATA]), st.integers(0, 8), _numbers, _numbers)
_events = st.tuples(
    st.sampled_from([h.GET_DATA, h.GET_EVENT_TYPE]), st.integers(0, 2), _numbers, _numbers
)
_alloc = st.tuples(
    st.just(h.ALLOC_MODE), st.sampled_from([h.RIGHT, h.WILD, h.TRAPS, h.GROWS, h.ASKS]), _numbers
)
_grow = st.tuples(st.just(h.GROW), st.integers(0, 70))
_LIMITS = Limits(memory_bytes=h.MEMORY_BYTES, log_bytes=4096, kv_bytes=1 << 20)


@example([(h.ALLOC_MODE, h.TRAPS, 0), (0, 0, 0, 0), (0, 0, 0, 0, 0), (h.GET_EVENT_TYPE, 0, 0, 0)])
@given(st.lists(st.one_of(_calls, _ranges, _events, _alloc, _grow), max_size=30))
def test_any_sequence_of_host_calls_has_one_outcome(records: list[tuple[int, ...]]) -> None:
    payload = h.calls(*records)
    outcomes = [
        h.run(
            kind,
            "driver",
            payload=payload,
            env={"codes": "value", "": "empty"},
            stored={b"codes": b"stored", b"": b"empty"},
            limits=_LIMITS,
        )
        for kind in h.HOSTS
    ]
    assert outcomes[0] == outcomes[1] == outcomes[2]


@given(st.binary(max_size=300), st.sampled_from(["echo", "log_payload", "hand_on"]))
def test_any_payload_has_one_outcome(payload: bytes, handler: str) -> None:
    outcomes = [h.run(kind, "guest", handler, payload) for kind in h.HOSTS]
    assert outcomes[0] == outcomes[1] == outcomes[2]
