"""Recorded runs: each call once, in order, with the name that the handler used."""

from __future__ import annotations

from typing import NoReturn

import pytest

from fieldbrook.core.errors import StatementError
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.recording import Recorder, RecordLimits
from fieldbrook.wasm.run import Capabilities, EffectRefusedError, Run, Transaction

LIMITS = RecordLimits(calls=8, total_bytes=4_000, value_bytes=10)


class Chain(Capabilities):
    """A chain that accepts every transaction except `no`."""

    def send_transaction(
        self, run: Run, chain_id: int | None, operator: str | None, request: bytes
    ) -> Transaction:
        if request == b"no":
            raise EffectRefusedError("no such chain")
        return Transaction("chain:1", b"", "0xabc", "", request)

    def call_contract(self, run: Run, chain_id: int | None, request: bytes) -> bytes:
        return request[::-1]


class Refusing:
    """A database that refuses every statement."""

    def query(self, request: bytes, ends_at: float) -> NoReturn:
        raise StatementError("no table")

    def execute(self, request: bytes, ends_at: float) -> NoReturn:
        raise StatementError("no table")


def begun(stored: dict[bytes, bytes] | None = None) -> tuple[Run, Recorder]:
    values = stored or {}
    run, recorder = Run(b"", read=values.get, capabilities=Chain()), Recorder(LIMITS)
    recorder.begin(run, 3)
    return run, recorder


def set_key(run: Run, key: bytes, value: bytes) -> None:
    """Do the same as `ws_set_db` with a run."""
    run.writes.get(key)
    run.writes[key] = value


def shown(recorder: Recorder) -> list[tuple[str, bytes, bytes | None, bytes | str | None]]:
    return [
        (
            call.function,
            call.subject.data,
            call.before.data if call.before else None,
            call.error or (call.result.data if call.result else None),
        )
        for call in recorder.calls
    ]


def test_a_write_is_one_call_and_a_read_before_it_stays() -> None:
    run, recorder = begun({b"k": b"old"})
    set_key(run, b"k", b"new")
    assert run.writes.get(b"k") == b"new"  # a read of the handler
    set_key(run, b"k", b"newer")
    set_key(run, b"other", b"1")
    assert shown(recorder) == [
        ("ws_set_db", b"k", b"old", b"new"),
        ("ws_get_db", b"k", None, b"new"),
        ("ws_set_db", b"k", b"new", b"newer"),
        ("ws_set_db", b"other", None, b"1"),
    ]
    assert run.writes == {b"k": b"newer", b"other": b"1"}


def test_a_refusal_is_told_once_whether_the_call_or_only_its_log_record_is_seen() -> None:
    run, recorder = begun()
    session = recorder.session(Refusing())
    for _ in range(2):
        with pytest.raises(StatementError):
            session.execute(b"drop", 0.0)
        run.logs.append((abi.LOG_ERROR, abi.SOURCE_HOST, "ws_set_sql_db: no table"))
    with pytest.raises(EffectRefusedError):
        run.capabilities.send_transaction(run, 1, None, b"no")
    run.logs.append((abi.LOG_ERROR, abi.SOURCE_HOST, "ws_send_tx: no such chain"))
    for _ in range(2):
        run.logs.append((abi.LOG_ERROR, abi.SOURCE_HOST, "ws_send_mqtt_msg: full"))
    run.logs.append((abi.LOG_ERROR, abi.SOURCE_TASK, "start: trapped"))
    assert shown(recorder) == [
        *[("ws_set_sql_db", b"drop", None, "no table")] * 2,
        ("ws_send_tx", b"no", None, "no such ch"[:10]),
        *[("ws_send_mqtt_msg", b"", None, "full")] * 2,
    ]
    assert len(run.logs) == 6


def test_chains_are_recorded_with_hashes_and_results() -> None:
    run, recorder = begun()
    run.effects.append(run.capabilities.send_transaction(run, 1, None, b"pay"))
    assert run.capabilities.call_contract(run, 1, b"abc") == b"cba"
    assert shown(recorder) == [
        ("ws_send_tx", b"pay", None, b"0xabc"),
        ("ws_call_contract", b"abc", None, b"cba"),
    ]
    assert len(run.effects) == 1


def test_what_exceeds_a_limit_is_counted_and_values_are_cut() -> None:
    run, recorder = begun()
    set_key(run, b"k", b"v" * 5_000)
    assert recorder.calls[0].result is not None
    assert (recorder.calls[0].result.data, recorder.calls[0].result.size) == (b"v" * 10, 5_000)
    for _ in range(20):
        set_key(run, b"k", b"v")
    assert (len(recorder.calls), recorder.omitted) == (8, 13)
    assert recorder.size <= LIMITS.total_bytes
    small = Recorder(RecordLimits(calls=100, total_bytes=200, value_bytes=100))
    small.begin(run, 1)
    for _ in range(20):
        set_key(run, b"k", b"v")
    assert len(small.calls) + small.omitted == 20
    assert 0 < small.size <= 200


def test_each_run_has_its_strategy_its_memory_and_took_longer_than_until_its_last_call() -> None:
    run, recorder = begun()
    run.read(b"k")
    run.memory_bytes = 65_536
    recorder.end(run)
    second = Run(b"")
    recorder.begin(second, 4)
    recorder.end(second)
    (first, us, memory), (other, _, nothing) = recorder.runs
    assert (first, memory, other, nothing) == (3, 65_536, 4, 0)
    assert us >= recorder.calls[0].at_us
