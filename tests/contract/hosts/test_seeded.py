"""Seeded runs: the same on every host, and with the library's errors."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from fieldbrook.wasm.engine.applet import AppletHost
from fieldbrook.wasm.engine.reference import ReferenceHost
from fieldbrook.wasm.run import Capabilities, Host, Run
from fieldbrook.wasm.seeded import READING_NS, Seeded
from tests.contract.hosts import harness as h

STARTED_NS = 1_700_000_000_000_000_000
KINDS: dict[str, Callable[..., Any]] = {
    "raw": AppletHost,
    "reference": ReferenceHost,
    "batch": h.BatchHost,
}


class Repeatable(Capabilities):
    def __init__(self, seed: int, number: int) -> None:
        self.seeded = Seeded(seed, number, STARTED_NS)


@cache
def host(kind: str) -> Host:
    made: Host = KINDS[kind](h.engine(), h.module("chance"), h.LIMITS, seeded=True)
    return made


def run(kind: str, handler: str, seed: int = 1, number: int = 0) -> tuple[int, str, bytes]:
    given = Run(b"", capabilities=Repeatable(seed, number))
    code, reason = host(kind).run(handler, given)
    return code, reason, given.writes.get(b"left", b"")


def test_a_seed_gives_the_same_time_and_chance_on_every_host() -> None:
    left = [run(kind, "all") for kind in KINDS for _ in range(2)]
    assert all(item == left[0] for item in left)
    unix_ns, elapsed_ns, _, seed, rid = struct.unpack_from("<QQQdI", left[0][2])
    assert unix_ns == STARTED_NS + READING_NS
    assert elapsed_ns == 2 * READING_NS
    assert seed > 0
    assert 0 < rid < 1 << 31


def test_another_seed_or_another_run_gives_other_numbers() -> None:
    chances = {
        struct.unpack_from("<QdI", run("raw", "all", seed, number)[2], 16)
        for seed in (1, 2)
        for number in (0, 1)
    }
    assert len(chances) == 4
    rids = [struct.unpack_from("<I", run("raw", "all", 1, n)[2], 32)[0] for n in range(3)]
    assert rids == list(range(rids[0], rids[0] + 3))


@pytest.mark.parametrize("kind", KINDS)
def test_time_passes_for_a_seeded_run_that_sleeps_or_waits(kind: str) -> None:
    code, reason, left = run(kind, "sleep")
    assert (code, reason) == (0, "")
    assert struct.unpack_from("<Q", left) == (4_000_000_000 + READING_NS,)
    assert run(kind, "sleep_long") == (-1, "deadline of 5000 ms exceeded", b"")
    assert struct.unpack_from("<Q", run(kind, "wait")[2]) == (500_000_000,)


@pytest.mark.parametrize(
    "handler",
    ["clock_2", "clock_3", "clock_4", "clock_wild", "clock_odd", "random_none", "random_wild"],
)
def test_a_seeded_run_meets_the_librarys_errors(handler: str) -> None:
    theirs = h.run("raw", "chance", handler)
    for kind in KINDS:
        assert run(kind, handler)[:2] == (theirs.code, theirs.reason)
