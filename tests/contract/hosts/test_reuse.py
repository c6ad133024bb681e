"""One instance for many events: its state is kept, its budgets are renewed."""

from __future__ import annotations

import pytest

from fieldbrook.wasm.engine.applet import AppletHost
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.inspection import compile_module, to_binary
from fieldbrook.wasm.run import Run
from tests.contract.hosts import harness as h

COUNTING = b"""
(module
  (import "env" "ws_log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (global $count (mut i32) (i32.const 0))
  (func $more (result i32)
    (global.set $count (i32.add (global.get $count) (i32.const 1))) (global.get $count))
  (func (export "count") (param i32) (result i32) (call $more))
  (func (export "trap") (param i32) (result i32) (drop (call $more)) unreachable)
  (func (export "spin") (param i32) (result i32) (loop $l (br $l)) (i32.const 0))
  (func (export "grow") (param i32) (result i32) (drop (memory.grow (i32.const 40))) (call $more))
  (func (export "chatter") (param i32) (result i32) (local $n i32)
    (loop $l (drop (call $log (i32.const 4) (i32.const 0) (i32.const 1)))
      (local.set $n (i32.add (local.get $n) (i32.const 1)))
      (br_if $l (i32.lt_u (local.get $n) (i32.const 5))))
    (call $more)))
"""


def kept(events: int, limits: Limits = h.LIMITS) -> AppletHost:
    module = compile_module(h.engine(), to_binary(COUNTING), limits)[0]
    return AppletHost(h.engine(), module, limits, reuse_events=events)


def codes(host: AppletHost, *handlers: str) -> list[int]:
    return [host.run(handler, Run(b""))[0] for handler in handlers]


def test_an_instance_serves_its_number_of_events_and_is_then_a_new_one() -> None:
    host = kept(3)
    assert codes(host, *["count"] * 7) == [1, 2, 3, 1, 2, 3, 1]
    host.close()


@pytest.mark.parametrize("failing", ["trap", "spin"])
def test_the_event_that_fails_ends_its_instance(failing: str) -> None:
    host = kept(100, h.AMPLE)
    assert codes(host, "count", "count", failing, "count") == [1, 2, -1, 1]
    host.close()


def test_an_instance_that_took_half_of_its_memory_is_the_last_event_s() -> None:
    host = kept(100)
    assert codes(host, "count", "grow", "count") == [1, 2, 1]
    host.close()


def test_every_event_has_the_whole_of_its_budgets() -> None:
    host = kept(100, Limits(memory_bytes=h.MEMORY_BYTES, host_calls=5))
    assert codes(host, *["chatter"] * 4) == [1, 2, 3, 4]
    host.close()


@pytest.mark.parametrize("name", ["guest", "driver"])
def test_an_applet_that_keeps_nothing_has_the_outcomes_it_has_in_fresh_instances(name: str) -> None:
    handler = {"guest": "echo", "driver": "start"}[name]
    payloads = [h.calls((h.LOG, 4, 0, 5), (h.GET_DATA, 0, 1032, 1036)) for _ in range(5)]
    host = AppletHost(h.engine(), h.module(name), h.LIMITS, reuse_events=100)
    for payload in payloads:
        given = Run(payload)
        code, reason = host.run(handler, given)
        alone = h.run("reference", name, handler, payload)
        assert (code, reason, given.logs) == (alone.code, alone.reason, alone.logs)
    host.close()
