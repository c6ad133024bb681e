"""The behaviour of every host, regardless of the interface of wasmtime that it uses."""

from __future__ import annotations

import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from fieldbrook.core.errors import StoreError
from fieldbrook.wasm.engine.engine import make_engine
from fieldbrook.wasm.limits import PAGE_BYTES, Limits
from fieldbrook.wasm.module.abi import LOG_ERROR, LOG_INFO, LOG_UNKNOWN, SOURCE_GUEST, SOURCE_HOST
from fieldbrook.wasm.module.inspection import compile_module, to_binary
from fieldbrook.wasm.run import Run
from tests.contract.hosts import harness as h

WILD = 0xFFFF_FFF0
INSIDE = 3000


@pytest.fixture(params=h.HOSTS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---------------------------------------------------------------- what a handler can do


@pytest.mark.parametrize("payload", [b"", b"{}", b"\0\xff" * 100, bytes(200_000)])
def test_a_payload_arrives_as_it_was_sent(kind: str, payload: bytes) -> None:
    assert h.run(kind, "guest", "echo", payload) == (0, "", {b"payload": payload}, [])


def test_a_handler_sees_what_is_stored_and_then_its_own_write(kind: str) -> None:
    stored = {b"counter": (40).to_bytes(4, "little")}
    outcome = h.run(kind, "guest", "count_twice", stored=stored)
    assert outcome == (42, "", {b"counter": (42).to_bytes(4, "little")}, [])


def test_copies_of_a_host_run_in_other_threads_at_the_same_time(kind: str) -> None:
    original = h.HOSTS[kind](h.engine(), h.module("guest"), h.LIMITS)
    hosts = [original.copy() for _ in range(4)]
    original.close()
    start = threading.Barrier(4)

    def runs(number: int) -> list[Run]:
        start.wait()
        made = []
        for payload in (b"%d %d" % (number, turn) for turn in range(50)):
            made.append(Run(payload))
            assert hosts[number].run("echo", made[-1]) == (0, "")
        return made

    with ThreadPoolExecutor(4) as threads:
        for number, made in enumerate(threads.map(runs, range(4))):
            expected = [{b"payload": b"%d %d" % (number, turn)} for turn in range(50)]
            assert [run.writes for run in made] == expected
    for host in hosts:
        host.close()


def test_a_key_that_is_not_stored_is_reported_as_such(kind: str) -> None:
    assert h.run(kind, "guest", "count_twice").code == 2


def test_log_records_carry_level_source_and_text(kind: str) -> None:
    outcome = h.run(kind, "guest", "log_payload", "grün \ud7ff".encode() + b"\xff")
    assert outcome.logs == [
        (LOG_INFO, SOURCE_GUEST, "grün \ud7ff\ufffd"),
        (LOG_UNKNOWN, SOURCE_GUEST, "payload"),
    ]


@pytest.mark.parametrize("letter", ["x", "ü", "€", "𝄞"])
def test_a_log_record_is_cut_at_1024_characters_not_bytes(kind: str, letter: str) -> None:
    outcome = h.run(kind, "guest", "log_payload", (letter * 5000).encode())
    assert outcome.logs[0][2] == letter * 1024


def test_a_variable_of_the_project_is_read(kind: str) -> None:
    outcome = h.run(kind, "guest", "colour", env={"COLOUR": "grün"})
    assert outcome == (0, "", {b"COLOUR": "grün".encode()}, [])


def test_a_variable_that_is_not_there_is_code_8(kind: str) -> None:
    assert h.run(kind, "guest", "colour", env={"COLOR": "red"}) == (8, "", {}, [])


def test_the_event_type_is_read(kind: str) -> None:
    outcome = h.run(kind, "guest", "event_type", event_type="TEMPERATURE")
    assert outcome.writes == {b"type": b"TEMPERATURE"}


def test_data_and_type_of_an_unknown_event_are_code_2_and_leave_no_record(kind: str) -> None:
    assert h.run(kind, "guest", "unknown_rid", b"x") == (2, "", {}, [])


def test_data_set_under_another_number_is_read_back_under_it(kind: str) -> None:
    assert h.run(kind, "guest", "hand_on").writes == {b"payload": b"counter"}


def test_data_set_in_one_run_is_gone_in_the_next(kind: str) -> None:
    h.run(kind, "driver", payload=h.calls((h.SET_DATA, 1, 0, 5)))
    again = h.run(kind, "driver", payload=h.calls((h.GET_DATA, 1, INSIDE, INSIDE + 4)))
    assert h.codes(again) == [2]


def test_a_code_other_than_zero_is_a_result_and_no_failure(kind: str) -> None:
    assert h.run(kind, "guest", "negative") == (-7, "", {}, [])


def test_every_run_has_memory_and_globals_of_its_own(kind: str) -> None:
    assert [h.run(kind, "guest", "fresh").code for _ in range(20)] == [1] * 20


def test_seed_is_a_number_that_is_not_negative(kind: str) -> None:
    assert h.run(kind, "guest", "seed").code == 1


def test_trace_shows_as_many_values_as_it_says(kind: str) -> None:
    assert h.run(kind, "guest", "trace").logs == [
        (LOG_INFO, SOURCE_HOST, "trace: bad!"),
        (LOG_INFO, SOURCE_HOST, "trace: bad! 1, -2.5"),
        (LOG_INFO, SOURCE_HOST, "trace: bad! 1, 2, 3, inf, nan"),
    ]


@pytest.mark.parametrize("handler", ["nowhere", "alloc", "two_params", "no_result", "no_function"])
def test_a_handler_that_is_not_one_is_refused_without_a_call(kind: str, handler: str) -> None:
    assert h.run(kind, "guest", handler) == (-1, "func not imported", {}, [])


# ---------------------------------------------------------------- how a run ends early


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        ("out_of_bounds", "wasm trap: out of bounds memory access"),
        ("divide_by_zero", "wasm trap: integer divide by zero"),
        ("recurse", "wasm trap: call stack exhausted, in recurse (recursive)"),
    ],
)
def test_a_trap_is_a_failure_with_its_reason(kind: str, handler: str, reason: str) -> None:
    assert h.run(kind, "guest", handler) == (-1, reason, {}, [])


def test_logs_from_before_a_trap_stay(kind: str) -> None:
    outcome = h.run(kind, "guest", "trap")
    assert outcome[:2] == (-1, "wasm trap: wasm `unreachable` instruction executed")
    assert outcome.logs == [(LOG_INFO, SOURCE_GUEST, "payload")]


def test_an_abort_is_recorded_with_its_place(kind: str) -> None:
    outcome = h.run(kind, "guest", "abort")
    assert outcome.reason == "wasm trap: abort: bad! at a.ts:3:5"
    assert outcome.logs == [(LOG_ERROR, SOURCE_HOST, "abort: bad! at a.ts:3:5")]


def test_an_abort_does_not_trap_by_itself(kind: str) -> None:
    outcome = h.run(kind, "guest", "abort_without_text")
    assert outcome.code == 0
    assert outcome.logs == [
        (LOG_ERROR, SOURCE_HOST, "abort: no string at address 2"),
        (LOG_ERROR, SOURCE_HOST, "abort:  at :3:5"),
    ]


@pytest.mark.parametrize(
    ("name", "handler", "place"),
    [
        ("guest", "loop", ""),  # without a name in the module
        ("start_loop", "start", ", in begin"),
        ("initialize_loop", "start", ""),
    ],
)
def test_a_loop_anywhere_ends_at_the_deadline(
    kind: str, name: str, handler: str, place: str
) -> None:
    outcome = h.run(kind, name, handler, limits=h.SHORT)
    assert outcome == (-1, f"deadline of 50 ms exceeded{place}", {}, [])


def test_a_loop_in_alloc_ends_the_run_and_not_only_the_call(kind: str) -> None:
    payload = h.calls((h.ALLOC_MODE, h.LOOPS), (h.GET_DATA, 0, INSIDE, INSIDE + 4))
    outcome = h.run(kind, "driver", payload=payload, limits=h.SHORT)
    reason = "deadline of 50 ms exceeded, in alloc, called by perform"
    assert outcome == (-1, reason, {}, [])


def test_memory_grows_to_the_limit_and_no_further(kind: str) -> None:
    assert h.run(kind, "guest", "grow").code == h.MEMORY_BYTES // PAGE_BYTES


@pytest.mark.parametrize("kind", ["raw", "reference"])  # batches measure nothing
def test_the_memory_of_a_run_is_measured_when_it_is_asked_for_and_when_it_failed(kind: str) -> None:
    host, sizes = h.host(kind, "guest"), {}
    for handler in ("echo", "trap", "grow"):
        run = Run(b"x")
        run.memory_bytes = 0
        host.run(handler, run)
        sizes[handler] = run.memory_bytes
    assert sizes == {"echo": PAGE_BYTES, "trap": PAGE_BYTES, "grow": h.MEMORY_BYTES}
    unmeasured = Run(b"x")
    host.run("echo", unmeasured)
    assert unmeasured.memory_bytes is None


def test_a_host_runs_on_after_a_run_that_failed(kind: str) -> None:
    for handler in ("trap", "recurse", "abort", "grow"):
        h.run(kind, "guest", handler)
        assert h.run(kind, "guest", "echo", b"next") == (0, "", {b"payload": b"next"}, [])


# ---------------------------------------------------------------- budgets


def test_too_many_log_bytes_end_the_run_and_the_records_so_far_stay(kind: str) -> None:
    limits = Limits(memory_bytes=h.MEMORY_BYTES)
    outcome = h.run(kind, "guest", "many_logs", limits=limits)
    assert outcome[:2] == (-1, "log budget of 262144 bytes exceeded")
    assert len(outcome.logs) == limits.log_bytes // (len("payload") + 32)


def test_too_many_host_calls_end_the_run(kind: str) -> None:
    limits = Limits(memory_bytes=h.MEMORY_BYTES, host_calls=10)
    outcome = h.run(kind, "guest", "many_writes", limits=limits)
    assert outcome[:2] == (-1, "host call budget of 10 calls exceeded")
    assert len(outcome.writes) == 10


def test_a_budget_of_no_host_calls_allows_none(kind: str) -> None:
    limits = Limits(memory_bytes=h.MEMORY_BYTES, host_calls=0)
    outcome = h.run(kind, "guest", "many_writes", limits=limits)
    assert outcome == (-1, "host call budget of 0 calls exceeded", {}, [])
    assert h.run(kind, "guest", "negative", limits=limits).code == -7


def test_too_many_bytes_for_the_store_end_the_run(kind: str) -> None:
    limits = Limits(memory_bytes=h.MEMORY_BYTES, kv_bytes=10 * 1004)
    outcome = h.run(kind, "guest", "many_writes", limits=limits)
    assert outcome[:2] == (-1, "key-value budget of 10040 bytes exceeded")
    assert len(outcome.writes) == 10


def test_a_value_written_again_is_counted_once(kind: str) -> None:
    limits = Limits(memory_bytes=h.MEMORY_BYTES, kv_bytes=1007)
    assert h.run(kind, "guest", "many_overwrites", limits=limits).code == 0


def test_too_much_data_under_other_numbers_ends_the_run(kind: str) -> None:
    limits = Limits(memory_bytes=h.MEMORY_BYTES, data_bytes=5000)
    outcome = h.run(kind, "guest", "many_data", limits=limits)
    assert outcome[:2] == (-1, "data budget of 5000 bytes exceeded")


def test_a_budget_used_up_within_alloc_ends_the_run(kind: str) -> None:
    payload = h.calls((h.ALLOC_MODE, h.CALLS), (h.GET_DATA, 0, INSIDE, INSIDE + 4))
    limits = Limits(memory_bytes=h.MEMORY_BYTES, host_calls=1000)
    outcome = h.run(kind, "driver", payload=payload, limits=limits)
    assert outcome == (-1, "host call budget of 1000 calls exceeded", {}, [])


def test_the_records_of_host_functions_count_as_well(kind: str) -> None:
    payload = h.calls(*[(h.LOG, 4, WILD, 4)] * 20)
    limits = Limits(memory_bytes=h.MEMORY_BYTES, log_bytes=500)
    outcome = h.run(kind, "driver", payload=payload, limits=limits)
    assert outcome.reason == "log budget of 500 bytes exceeded"
    assert 0 < len(outcome.logs) < 20


# ---------------------------------------------------------------- pointers


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ((h.LOG, 4, WILD, 4), -1),
        ((h.LOG, 4, 0, 0xFFFF_FFFF), -1),
        ((h.GET_DATA, 0, WILD, INSIDE), 5),
        ((h.GET_DATA, 0, INSIDE, WILD), 5),
        ((h.GET_DATA, 0, 2 * PAGE_BYTES - 3, INSIDE), 5),
        ((h.SET_DATA, 0, WILD, 100), 5),
        ((h.SET_DATA, 0, 1, 2 * PAGE_BYTES), 5),
        ((h.GET_EVENT_TYPE, 0, WILD, WILD), 5),
        ((h.GET_DB, WILD, 4, INSIDE, INSIDE), 2),
        ((h.GET_DB, 0, 5, WILD, INSIDE), 5),
        ((h.SET_DB, WILD, 4, INSIDE, 4), 2),
        ((h.SET_DB, INSIDE, 4, WILD, 4), 2),
        ((h.SET_DB, INSIDE, 0xFFFF_FFFF, INSIDE, 4), 2),
        ((h.GET_ENV, WILD, 4, INSIDE, INSIDE), 5),
        ((h.GET_ENV, 0, 5, INSIDE, WILD), 5),
        ((h.ABORT, WILD, 20, 1, 1), 0),
        ((h.ABORT, 20, WILD, 1, 1), 0),
        ((h.TRACE, WILD, 2), 0),
    ],
)
def test_a_pointer_outside_memory_is_a_code_and_a_record(
    kind: str, call: tuple[int, ...], code: int
) -> None:
    outcome = h.run(
        kind, "driver", payload=h.calls(call), env={"codes": "x"}, stored={b"codes": b"x"}
    )
    assert outcome.code == 0
    assert h.codes(outcome) == [code]
    assert [(level, source) for level, source, _ in outcome.logs] == [(LOG_ERROR, SOURCE_HOST)]
    assert "beyond the memory of 131072 bytes" in outcome.logs[0][2]


def test_the_last_bytes_of_memory_can_be_used(kind: str) -> None:
    end = 2 * PAGE_BYTES
    payload = h.calls((h.SET_DB, end - 4, 4, end, 0), (h.GET_DATA, 0, end - 8, end - 4))
    assert h.codes(h.run(kind, "driver", payload=payload)) == [0, 0]


@pytest.mark.parametrize("pointer", [WILD, 2 * PAGE_BYTES, 2 * PAGE_BYTES - 10, 0xFFFF_FFFF])
def test_an_alloc_that_returns_a_wild_pointer_is_code_5(kind: str, pointer: int) -> None:
    payload = h.calls((h.ALLOC_MODE, h.WILD, pointer), (h.GET_DATA, 0, INSIDE, INSIDE + 4))
    outcome = h.run(kind, "driver", payload=payload)
    assert h.codes(outcome) == [0, 5]


def test_an_alloc_that_traps_is_code_5_and_the_handler_goes_on(kind: str) -> None:
    payload = h.calls(
        (h.ALLOC_MODE, h.TRAPS), (h.GET_DATA, 0, INSIDE, INSIDE + 4), (h.LOG, 4, 0, 5)
    )
    outcome = h.run(kind, "driver", payload=payload)
    assert h.codes(outcome) == [0, 5, 0]
    trap = "wasm trap: wasm `unreachable` instruction executed, in alloc, called by perform"
    assert outcome.logs[0] == (LOG_ERROR, SOURCE_HOST, f"ws_get_data: alloc: {trap}")


def test_an_alloc_that_grows_the_memory_gets_its_data_there(kind: str) -> None:
    payload = h.calls((h.ALLOC_MODE, h.GROWS), (h.GET_DATA, 0, INSIDE, INSIDE + 4))
    outcome = h.run(kind, "driver", payload=payload)
    assert h.codes(outcome) == [0, 0]
    memory = outcome.writes[b"memory"]
    assert memory[2 * PAGE_BYTES :] == payload + bytes(3 * PAGE_BYTES - len(payload))


def test_an_alloc_that_asks_for_data_itself_gets_code_5(kind: str) -> None:
    payload = h.calls((h.ALLOC_MODE, h.ASKS), (h.GET_DATA, 0, INSIDE, INSIDE + 4))
    outcome = h.run(kind, "driver", payload=payload)
    assert h.codes(outcome) == [0, 0]
    assert outcome.writes[b"memory"][1024] == 5
    assert outcome.logs == [(LOG_ERROR, SOURCE_HOST, "ws_get_data: called from within alloc")]


def test_a_module_without_alloc_gets_code_5_and_can_still_log(kind: str) -> None:
    assert h.run(kind, "no_alloc", payload=b"x") == (
        5,
        "",
        {},
        [
            (LOG_INFO, SOURCE_GUEST, "still here"),
            (LOG_ERROR, SOURCE_HOST, "ws_get_data: the module exports no alloc"),
        ],
    )


# ---------------------------------------------------------------- start-up and WASI


def test_a_start_section_can_call_the_host_and_is_given_data(kind: str) -> None:
    assert h.run(kind, "start_section", env={"COLOUR": "red"}) == (
        0,
        "",
        {b"COLOUR": b"red"},
        [(LOG_INFO, SOURCE_GUEST, "red"), (LOG_INFO, SOURCE_GUEST, "COLOUR")],
    )


def test_a_trap_in_a_start_section_is_a_failure_whose_logs_stay(kind: str) -> None:
    outcome = h.run(kind, "start_trap")
    assert outcome[:2] == (-1, "wasm trap: wasm `unreachable` instruction executed, in begin")
    assert outcome.logs == [(LOG_ERROR, SOURCE_GUEST, "begin")]


def test_initialize_runs_once_per_run_and_start_never(kind: str) -> None:
    assert [h.run(kind, "initialize").code for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("handler", "code"),
    [
        ("write", 0),
        ("write_nowhere", 8),
        ("random", 0),
        ("environment", 0),
        ("sleep", 1 + 11),
        ("poll_a_file", 8),
        ("poll_nothing", 28),
        ("poll_out_of_bounds", 21),
    ],
)
def test_wasi_works_and_holds_nothing(kind: str, handler: str, code: int) -> None:
    assert h.run(kind, "wasi", handler)[:2] == (code, "")


@pytest.mark.parametrize(
    ("handler", "status"), [("exit_0", 0), ("exit_3", 3), ("exit_in_alloc", 4)]
)
def test_an_exit_is_a_failure_with_its_status(kind: str, handler: str, status: int) -> None:
    assert h.run(kind, "wasi", handler)[:2] == (-1, f"exit status {status}")


def test_a_sleep_ends_at_the_deadline(kind: str) -> None:
    outcome = h.run(kind, "wasi", "sleep_for_an_hour", limits=h.SHORT)
    assert outcome[:2] == (-1, "deadline of 50 ms exceeded")


# ---------------------------------------------------------------- the node's own failures


def test_a_store_that_fails_ends_the_run_with_its_own_error(kind: str) -> None:
    def read(key: bytes) -> bytes | None:
        raise StoreError(reason=f"cannot read {key!r}")

    host = h.host(kind, "guest")
    with pytest.raises(StoreError, match="counter"):
        host.run("count_twice", Run(b"", read=read))
    assert host.run("negative", Run(b"")) == (-7, "")


def test_an_interrupt_of_the_node_comes_out_of_the_run(kind: str) -> None:
    def read(_key: bytes) -> bytes | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        h.host(kind, "guest").run("count_twice", Run(b"", read=read))


def test_a_fault_of_a_host_function_is_logged_and_fails_the_run(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def read(_key: bytes) -> bytes | None:
        raise ZeroDivisionError

    answer = h.host(kind, "guest").run("count_twice", Run(b"", read=read))
    assert answer == (-1, "host function env.ws_get_db failed")
    assert "ZeroDivisionError" in caplog.text


HOARDER = """
(module
  (import "fieldbrook" "sha256" (func $sha (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1000)
  (func (export "alloc") (param i32) (result i32) (i32.const 1000))
  (func (export "start") (param i32) (result i32)
    (loop $again
      (drop (call $sha (i32.const 1000) (i32.const 60000000) (i32.const 0) (i32.const 4)))
      (br $again))
    (i32.const 0)))
"""
NAMES = """
(module
  (import "env" "ws_get_env" (func $env (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1000)
  (func $fill (memory.fill (i32.const 1000) (i32.const 255) (i32.const 60000000)))
  (func (export "variable") (param i32) (result i32)
    (call $fill)
    (call $env (i32.const 1000) (i32.const 60000000) (i32.const 0) (i32.const 4)))
  (func (export "key") (param i32) (result i32)
    (call $fill)
    (call $db (i32.const 1000) (i32.const 60000000) (i32.const 0) (i32.const 4)))
  (func (export "outside") (param i32) (result i32)
    (call $env (i32.const 1000) (i32.const 0x7fffffff) (i32.const 0) (i32.const 4))))
"""


@pytest.mark.parametrize("kind", ["raw", "reference"])
def test_a_name_of_megabytes_is_that_of_nothing_and_not_copied(kind: str) -> None:
    limits, read = Limits(), list[bytes]()

    def note(key: bytes) -> bytes | None:
        read.append(key)
        return None

    engine = make_engine(limits)
    module, _ = compile_module(engine, to_binary(NAMES.encode()), limits)
    host = h.HOSTS[kind](engine, module, limits)
    assert host.run("variable", Run(b"", read=note)) == (8, "")
    assert host.run("key", Run(b"", read=note)) == (2, "")
    assert read == []
    outside = Run(b"")
    assert host.run("outside", outside) == (5, "")
    assert "is beyond the memory" in outside.logs[0][2]
    tracemalloc.start()
    try:
        host.run("variable", Run(b""))
        host.run("key", Run(b""))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    host.close()


@pytest.mark.parametrize("kind", ["raw", "reference"])
def test_a_run_ends_at_its_deadline_although_each_of_its_calls_copies_much(kind: str) -> None:
    limits = Limits(deadline_ms=500)
    engine = make_engine(limits)
    module, _ = compile_module(engine, to_binary(HOARDER.encode()), limits)
    host = h.HOSTS[kind](engine, module, limits)
    began = time.process_time()
    assert host.run("start", Run(b"")) == (-1, "deadline of 500 ms exceeded")
    assert time.process_time() - began < 1.5
    host.close()
