"""Short form of the fault tests: each kind of process is killed once under load; the ledger
agrees."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.observability import fault_points
from tests.faults.harness import KILLED, Fault, Harness, every_kind, faults
from tests.faults.ledger import Entry, Ledger, Verdict, judge

SEED = 20


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fb") as made:
        yield Path(made)


@pytest.mark.timeout(240)
def test_whatever_is_broken_no_acknowledged_event_is_lost_and_no_named_one_doubled(
    folder: Path,
) -> None:
    kinds = [Fault("kill", part) for part in (*KILLED, "everything")]
    kinds += [Fault(verb) for verb in ("deploy", "revoke", "idle", "copy")]
    report = Harness(folder).run(faults(SEED, len(kinds), kinds))
    assert report.problems == []
    assert report.verdict.lost == []
    assert report.verdict.wrong == []
    assert report.verdict.unknown == []
    assert report.faults.total() == len(kinds)
    assert report.verdict.acknowledged > 100


def test_the_long_form_kills_a_worker_at_every_point_that_has_a_name(tmp_path: Path) -> None:
    cut = {kind.part for kind in every_kind(tmp_path) if kind.verb == "cut"}
    words = ("chain", "outbox", "leases")  # tests/chain kills at the points of these
    of_sending = {name for name in fault_points.POINTS if any(word in name for word in words)}
    assert cut == fault_points.POINTS.keys() - of_sending


def test_a_seed_always_breaks_the_same_things_at_the_same_moments() -> None:
    kinds = [Fault("kill", part) for part in KILLED]
    assert list(faults(7, 30, kinds)) == list(faults(7, 30, kinds))
    assert list(faults(7, 30, kinds)) != list(faults(8, 30, kinds))


def judged(entry: Entry, count: int, *, parked: bool = False) -> Verdict:
    verdict = Verdict()
    judge("e", entry, count, parked, verdict)
    return verdict


def test_an_acknowledged_event_that_is_nowhere_is_lost() -> None:
    assert judged(Entry(named=False, attempts=1, acknowledged=True), 0).lost == ["e"]
    assert judged(Entry(named=False, attempts=1), 0).sound
    dead = judged(Entry(named=False, attempts=2, acknowledged=True), 0, parked=True)
    assert dead.sound
    assert dead.parked == 1


def test_an_event_may_be_doubled_only_when_it_was_sent_again_without_a_name() -> None:
    assert judged(Entry(named=False, attempts=2, acknowledged=True), 2).doubled == 1
    assert not judged(Entry(named=True, attempts=2, acknowledged=True), 2).sound
    assert not judged(Entry(named=False, attempts=1, acknowledged=True), 2).sound


def test_an_event_that_nobody_sent_is_not_sound() -> None:
    assert Ledger().compare({"ghost": 1}, set()).unknown == ["ghost"]
