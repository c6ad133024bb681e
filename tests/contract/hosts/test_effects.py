"""The effects of a run are bounded, and refused if their destination is impossible, the same on
every host."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.inspection import compile_module, to_binary
from fieldbrook.wasm.run import ApiCall, Capabilities, EffectRefusedError, Message, Metric, Run
from tests.contract.hosts import harness as h

MODULE = b"""
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_send_mqtt_msg" (func $send (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_api_call" (func $api (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_tx" (func $tx (param i32 i32) (result i32)))
  (import "stat" "ws_submit_metrics" (func $submit (param i32 i32) (result i32)))
  (import "stat" "ws_gauge_set" (func $gauge (param i32 i32 f64) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "a/topic")
  (func (export "alloc") (param i32) (result i32) (i32.const 4096))
  (func $payload (param i32)
    (drop (call $get_data (local.get 0) (i32.const 0) (i32.const 4))))
  (func $publish (result i32)
    (call $send (i32.const 64) (i32.const 7) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "publish") (param i32) (result i32) (call $payload (local.get 0)) (call $publish))
  (func (export "to") (param i32) (result i32) (call $payload (local.get 0))
    (call $send (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 64) (i32.const 1)))
  (func (export "flood") (param i32) (result i32) (call $payload (local.get 0))
    (loop $l (drop (call $publish)) (br $l)) (i32.const 0))
  (func (export "call") (param i32) (result i32) (call $payload (local.get 0))
    (call $api (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12)))
  (func (export "transact") (param i32) (result i32) (call $payload (local.get 0))
    (call $tx (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "submit") (param i32) (result i32) (call $payload (local.get 0))
    (call $submit (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "gauge") (param i32) (result i32)
    (call $gauge (i32.const 64) (i32.const 7) (f64.const 21.5))))
"""
SMALL = replace(h.LIMITS, effects=3, effect_bytes=1_000)


class Anywhere(Capabilities):
    def check_topic(self, topic: str) -> None:
        if topic == "forbidden":
            raise EffectRefusedError("nothing may be sent there")

    def api_refusal(self, method: str, url: str) -> tuple[int, str] | None:
        return None


def run(kind: str, handler: str, payload: bytes, limits: Limits = h.LIMITS) -> tuple[int, str, Run]:
    module = compile_module(h.engine(), to_binary(MODULE), limits)[0]
    host = h.HOSTS[kind](h.engine(), module, limits)
    given = Run(payload, capabilities=Anywhere())
    code, reason = host.run(handler, given)
    host.close()
    return code, reason, given


@pytest.fixture(params=list(h.HOSTS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_a_handler_sends_is_kept_in_order_with_its_run(kind: str) -> None:
    assert run(kind, "publish", b"21.5")[2].effects == [Message("a/topic", b"21.5")]
    assert run(kind, "submit", b'{"a": 1}')[2].effects == [Metric('{"a": 1}')]
    gauge = Metric('{"gauge": "a/topic", "value": 21.5}')
    assert run(kind, "gauge", b"")[2].effects == [gauge]
    request = b'{"Method":"GET","Url":"http://x/","Header":{"Eventtype":["R"]}}'
    assert run(kind, "call", request)[2].effects == [ApiCall("R", request)]


@pytest.mark.parametrize(
    ("limits", "payload", "reason"),
    [
        (SMALL, b"x", "effects budget of 3 per event exceeded"),
        (replace(SMALL, effects=99), b"x" * 300, "effects budget of 1000 bytes exceeded"),
    ],
)
def test_too_many_effects_end_the_run(
    kind: str, limits: Limits, payload: bytes, reason: str
) -> None:
    assert run(kind, "flood", payload, limits)[:2] == (-1, reason)


@pytest.mark.parametrize(
    "topic", [b"", b"a/#", b"+/b", b"a\0b", b"\xff", b"forbidden", b"x" * 65_536]
)
def test_a_topic_that_cannot_be_is_minus_1_and_a_record(kind: str, topic: bytes) -> None:
    code, reason, given = run(kind, "to", topic)
    assert (code, reason, given.effects) == (-1, "", [])
    assert len(given.logs) == 1


@pytest.mark.parametrize("payload", [b"", b"[1]", b"{", b"\xff", b"[" * 5_000])
def test_metrics_that_are_none_are_minus_1_and_a_record(kind: str, payload: bytes) -> None:
    code, reason, given = run(kind, "submit", payload)
    assert (code, reason, given.effects) == (-1, "", [])
    assert len(given.logs) == 1


def test_a_transaction_without_a_chain_is_minus_1_and_a_record(kind: str) -> None:
    code, _, given = run(kind, "transact", b"{}")
    assert code == -1
    assert [text for _, _, text in given.logs] == ["ws_send_tx: no chain is configured"]
