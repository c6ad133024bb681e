"""Imports of earlier SDKs and rare imports: each is called, and the variant is selected by its
type."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import wasmtime

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.inspection import check, compile_module, to_binary
from fieldbrook.wasm.run import (
    Capabilities,
    Message,
    Metric,
    NotInBatchError,
    Run,
    Transaction,
)
from tests.contract.hosts import harness as h

# A module has one variant of a name: two modules, one for each generation.
_TOP = """
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "topic")
  (data (i32.const 80) "name")
  (global $top (mut i32) (i32.const 4096))
  (func (export "alloc") (param i32) (result i32)
    (global.get $top) (global.set $top (i32.add (global.get $top) (local.get 0))))
  (func $payload (param i32)
    (if (call $get_data (local.get 0) (i32.const 0) (i32.const 4)) (then unreachable)))
  (func $keep (param i32) (result i32)
    (if (i32.eqz (local.get 0)) (then
      (drop (call $set_db (i32.const 80) (i32.const 4)
        (i32.load (i32.const 8)) (i32.load (i32.const 12))))))
    (local.get 0))"""
OLD = f"""(module
  (import "env" "ws_send_tx" (func $tx (param i32 i32) (result i32)))
  (import "env" "ws_call_contract" (func $call (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_mqtt" (func $send (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_get_mqtt_msg" (func $message (param i32 i32 i32 i32 i32) (result i32)))
  (import "stat" "ws_counter_inc" (func $inc (param i32 i32) (result i32)))
  (import "stat" "ws_counter_add" (func $add (param i32 i32 f64) (result i32)))
  {_TOP}
  (func (export "tx") (param i32) (result i32) (call $payload (local.get 0))
    (call $tx (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "call") (param i32) (result i32) (call $payload (local.get 0))
    (call $keep (call $call
      (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12))))
  (func (export "publish") (param i32) (result i32) (call $payload (local.get 0))
    (call $send (i32.const 64) (i32.const 5) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "message") (param i32) (result i32) (local $code i32)
    (local.set $code (call $message (local.get 0)
      (i32.const 8) (i32.const 12) (i32.const 16) (i32.const 20)))
    (drop (call $set_db (i32.const 64) (i32.const 5)
      (i32.load (i32.const 16)) (i32.load (i32.const 20))))
    (call $keep (local.get $code)))
  (func (export "of_another") (param i32) (result i32)
    (call $message (i32.add (local.get 0) (i32.const 1))
      (i32.const 8) (i32.const 12) (i32.const 16) (i32.const 20)))
  (func (export "count") (param i32) (result i32)
    (drop (call $inc (i32.const 80) (i32.const 4)))
    (call $add (i32.const 80) (i32.const 4) (f64.const 2.5)))
  (func (export "no_number") (param i32) (result i32)
    (call $add (i32.const 80) (i32.const 4) (f64.const nan))))"""
NEW = f"""(module
  (import "env" "ws_send_tx" (func $tx (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_tx_with_operator"
    (func $named (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "ws_call_contract" (func $call (param i32 i32 i32 i32 i32) (result i32)))
  {_TOP}
  (func (export "tx") (param i32) (result i32) (call $payload (local.get 0))
    (call $keep (call $tx (i32.const 4690)
      (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12))))
  (func (export "named") (param i32) (result i32) (call $payload (local.get 0))
    (call $keep (call $named (i32.const 4690)
      (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12))))
  (func (export "call") (param i32) (result i32) (call $payload (local.get 0))
    (call $keep (call $call (i32.const 4690)
      (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12)))))"""
MODULES = {"old": OLD, "new": NEW}


class Chained(Capabilities):
    """A chain whose answers describe the request."""

    def check_topic(self, topic: str) -> None:
        assert topic == "topic"

    def send_transaction(
        self, run: Run, chain_id: int | None, operator: str | None, request: bytes
    ) -> Transaction:
        return Transaction("c", b"k", f"hash of {chain_id} by {operator}", "n", request)

    def call_contract(self, run: Run, chain_id: int | None, request: bytes) -> bytes:
        return b"\xff\x00" + str(chain_id).encode() + request


@cache
def module(name: str) -> wasmtime.Module:
    return compile_module(h.engine(), to_binary(MODULES[name].encode()), h.LIMITS)[0]


@pytest.fixture(params=list(h.HOSTS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(kind: str, name: str, handler: str, payload: bytes) -> tuple[int, Run]:
    host = h.HOSTS[kind](h.engine(), module(name), h.LIMITS)
    given = Run(payload, "TYPE", capabilities=Chained())
    code, reason = host.run(handler, given)
    host.close()
    assert reason == ""
    return code, given


def test_a_transaction_is_sent_through_the_variant_that_the_module_was_built_for(
    kind: str,
) -> None:
    request = b'{"to":"0x1","operatorName":"ada"}'
    for name, handler, kept, hash_ in (
        ("old", "tx", None, "hash of None by None"),  # had no place to write it
        ("new", "tx", b"hash of 4690 by None", "hash of 4690 by None"),
        ("new", "named", b"hash of 4690 by ada", "hash of 4690 by ada"),
    ):
        code, left = run(kind, name, handler, request)
        assert code == abi.OK
        assert left.writes.get(b"name") == kept
        assert left.effects == [Transaction("c", b"k", hash_, "n", request)]


class Distant(Chained):
    """A chain that answers late."""

    def call_contract(self, run: Run, chain_id: int | None, request: bytes) -> bytes:
        if not run.ends_at:
            raise NotInBatchError
        return b"answer"


def test_an_event_that_has_to_wait_for_a_chain_leaves_the_batch_and_runs_alone() -> None:
    host = h.HOSTS["raw"](h.engine(), module("new"), h.LIMITS)
    runs = [Run(b"{}", capabilities=Distant()) for _ in range(2)]
    assert host.run_batch("call", runs) == []
    assert host.run("call", runs[0]) == (abi.OK, "")
    assert (runs[0].writes, runs[0].logs) == ({b"name": b"answer"}, [])
    host.close()


@pytest.mark.parametrize(("name", "chain"), [("old", b"None"), ("new", b"4690")])
def test_a_contract_is_called_through_either_variant_and_gives_raw_bytes(
    kind: str, name: str, chain: bytes
) -> None:
    code, left = run(kind, name, "call", b"{}")
    assert (code, left.writes) == (abi.OK, {b"name": b"\xff\x00" + chain + b"{}"})


@pytest.mark.parametrize("payload", [b"", b"\xff\x00", b"x" * 65_536])
def test_a_message_is_its_type_and_its_payload(kind: str, payload: bytes) -> None:
    code, left = run(kind, "old", "message", payload)
    assert (code, left.writes) == (abi.OK, {b"name": b"TYPE", b"topic": payload})
    assert run(kind, "old", "of_another", payload)[0] == abi.RESOURCE_NOT_FOUND


def test_a_message_is_published_under_the_older_name_too(kind: str) -> None:
    code, left = run(kind, "old", "publish", b"21.5")
    assert (code, left.effects) == (abi.OK, [Message("topic", b"21.5")])


def test_counters_are_metrics_and_what_is_no_number_is_none(kind: str) -> None:
    code, left = run(kind, "old", "count", b"")
    one, more = '{"counter": "name", "value": 1.0}', '{"counter": "name", "value": 2.5}'
    assert (code, left.effects) == (abi.OK, [Metric(one), Metric(more)])
    code, left = run(kind, "old", "no_number", b"")
    assert (code, left.effects) == (abi.FAILED, [])


@pytest.mark.parametrize(
    "imported",
    [
        "ws_send_tx (param i32 i32 i32) (result i32)",
        "ws_send_tx (param i32 i32)",
        "ws_call_contract (param i32) (result i32)",
        "ws_log (param i32 i32) (result i32)",
        "ws_log (param i64 i32 i32) (result i32)",
    ],
)
def test_a_known_name_of_another_type_is_refused_with_its_name(imported: str) -> None:
    name, _, form = imported.partition(" ")
    text = f"""(module (import "env" "{name}" (func {form})) (memory (export "memory") 1)
        (func (export "start") (param i32) (result i32) (i32.const 0)))"""
    with pytest.raises(ModuleRefusedError, match=name):
        check(to_binary(text.encode()), h.LIMITS)


def test_each_import_of_the_page_is_in_a_module_of_the_tests() -> None:
    """What nobody imports here nobody calls here."""
    seen: set[tuple[str, str, Any]] = set()
    texts = [path.read_bytes() for path in h.MODULES.glob("*.wat")]
    texts += [text.encode() for text in MODULES.values()]
    for text in texts:
        binary = to_binary(text)
        for one in wasmtime.Module(h.engine(), binary).imports:
            seen.add((one.module, str(one.name), _arity(one.type)))
    for signature in abi.SIGNATURES:
        key = (signature.module, signature.name, len(signature.params))
        assert key in seen or (signature.module, signature.name) in _ELSEWHERE, signature.label


def _arity(kind: Any) -> int:
    return len(kind.params) if isinstance(kind, wasmtime.FuncType) else -1


# Modules within the tests that name them.
_ELSEWHERE = {
    ("env", "ws_send_mqtt_msg"),
    ("env", "ws_api_call"),
    ("stat", "ws_submit_metrics"),
    ("stat", "ws_gauge_set"),
}
