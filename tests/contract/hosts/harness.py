"""All hosts, the test modules, and the outcome of a run."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import wasmtime

from fieldbrook.wasm.engine.applet import AppletHost
from fieldbrook.wasm.engine.engine import Engine, make_engine
from fieldbrook.wasm.engine.reference import ReferenceHost
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.inspection import compile_module, to_binary
from fieldbrook.wasm.run import Host, Run

MODULES = Path(__file__).parents[2] / "modules"


class BatchHost(AppletHost):
    """Every run is a batch of one, and what the batch does not settle runs alone."""

    def run(self, handler: str, run: Run) -> tuple[int, str]:
        """See `Host.run`."""
        settled = self.run_batch(handler, [run])
        return settled[0] if settled else super().run(handler, run)


HOSTS: dict[str, Callable[[Engine, wasmtime.Module, Limits], Host]] = {
    "raw": AppletHost,
    "reference": ReferenceHost,
    "batch": BatchHost,
}
MEMORY_BYTES = 4 << 20
LIMITS = Limits(memory_bytes=MEMORY_BYTES)
SHORT = Limits(memory_bytes=MEMORY_BYTES, deadline_ms=50)
AMPLE = Limits(memory_bytes=MEMORY_BYTES, deadline_ms=1_000)  # for events next to an endless one

# Functions as `driver.wat` numbers them.
LOG, GET_DATA, SET_DATA, GET_EVENT_TYPE, GET_DB, SET_DB, GET_ENV, ABORT, TRACE = range(9)
ALLOC_MODE, GROW = 9, 10
RIGHT, WILD, TRAPS, LOOPS, GROWS, ASKS, CALLS = range(7)


class Outcome(NamedTuple):
    """Everything in which two hosts could differ."""

    code: int
    reason: str
    writes: dict[bytes, bytes]
    logs: list[tuple[int, str, str]]


@cache
def engine() -> Engine:
    return make_engine(LIMITS)


@cache
def module(name: str) -> wasmtime.Module:
    binary = to_binary((MODULES / f"{name}.wat").read_bytes())
    return compile_module(engine(), binary, LIMITS)[0]


@cache
def host(kind: str, name: str, limits: Limits = LIMITS) -> Host:
    return HOSTS[kind](engine(), module(name), limits)


def run(
    kind: str,
    name: str,
    handler: str = "start",
    payload: bytes = b"",
    *,
    event_type: str = "DEFAULT",
    env: Mapping[str, str] | None = None,
    stored: Mapping[bytes, bytes] | None = None,
    limits: Limits = LIMITS,
) -> Outcome:
    """Run a test module on one of the hosts."""
    given = Run(payload, event_type, env, (stored or {}).get)
    code, reason = host(kind, name, limits).run(handler, given)
    return Outcome(code, reason, given.writes, given.logs)


def calls(*records: tuple[int, ...]) -> bytes:
    """A payload for `driver.wat`: each record a function's number and its arguments."""
    return b"".join(struct.pack("<5I", *record, *[0] * (5 - len(record))) for record in records)


def codes(outcome: Outcome) -> list[int]:
    """Return the result of each call of `driver.wat`."""
    raw = outcome.writes[b"codes"]
    return list(struct.unpack(f"<{len(raw) // 4}i", raw))
