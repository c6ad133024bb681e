"""Short form of the soak test, and its verdicts about growth and lost events."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.faults.growth import Held, Sample, slope, trends
from tests.faults.open_loop import BLOCK, Device, Singles, compare
from tests.faults.soak import Soak, as_json, picture, table

_RATE = 600.0
_SECONDS = 6.0


@pytest.mark.thorough
def test_under_steady_load_nothing_is_lost_or_doubled_and_the_run_is_drawn() -> None:
    with tempfile.TemporaryDirectory(prefix="fb") as folder:
        report = Soak(Path(folder), _RATE, 1.0, lambda _: None).run(_SECONDS)
    assert report.verdict.sound, table(report)
    assert report.verdict.acknowledged == report.verdict.sent >= _RATE
    # Such a short run cannot show growth, but its measurements must exist.
    assert {held.part for held in report.samples[-1].processes} > {"fb-http:0", "fb-worker:0"}
    report.refused["http 503"] = 1
    written = json.loads(as_json(report))
    assert written["verdict"]["lost"] == []
    assert written["refused"]["http 503"] == 1
    drawn = ElementTree.fromstring(picture(report))  # noqa: S314 - of our own making
    assert any((each.text or "").startswith("fb-worker") for each in drawn.iter())


def sampled(own_mib: Callable[[float], float], *, pid: int = 7, files: int = 20) -> list[Sample]:
    """Return samples of one process for half an hour, one each 10 s."""
    return [
        Sample(at, (Held(pid, "fb-x", 50.0, own_mib(at), 60.0, files, 3),), 1.0, 0, 0)
        for at in map(float, range(10, 1801, 10))
    ]


def test_memory_that_grows_only_while_it_warms_up_is_flat() -> None:
    found, problems = trends(sampled(lambda at: min(20 + at / 20, 30)))
    assert problems == []
    assert all(trend.flat for trend in found)


def test_memory_that_goes_up_and_down_is_flat_and_one_outlier_says_nothing() -> None:
    assert trends(sampled(lambda at: 20 + at % 100 / 10))[1] == []
    assert trends(sampled(lambda at: 90 if at == 1800 else 20))[1] == []


def test_memory_that_grows_by_6_mib_an_hour_is_told() -> None:
    _, problems = trends(sampled(lambda at: 20 + at * 6 / 3600))
    assert len(problems) == 1
    assert "fb-x: own_mib rises by 2.4" in problems[0]


def test_files_that_are_left_open_one_by_one_are_told() -> None:
    samples = [
        Sample(at, (Held(7, "fb-x", 50.0, 20.0, 60.0, int(20 + at / 200), 3),), 1.0, 0, 0)
        for at in map(float, range(10, 1801, 10))
    ]
    assert "files rises" in trends(samples)[1][0]


def test_a_process_that_was_replaced_after_the_warm_up_is_told() -> None:
    before, after = sampled(lambda _: 20.0), sampled(lambda _: 20.0, pid=8)
    _, problems = trends([*before[:90], *after[90:]])
    assert len(problems) == 2


def test_a_slope_is_that_of_the_line() -> None:
    assert slope([(0.0, 1.0), (10.0, 2.0), (30.0, 4.0)]) == 0.1
    assert slope([(0.0, 1.0)]) == 0.0


def device(number: int, attempts: bytes, acknowledged: bytes) -> Device:
    made = Singles(number, 1, "p", {"key": "k", "token": "t"}, 1.0)
    made.attempts, made.acknowledged = bytearray(attempts), bytearray(acknowledged)
    return made


def test_the_books_tell_which_events_were_lost_doubled_and_never_sent() -> None:
    one = device(1, b"\x01\x02\x01", b"\x01\x01\x01")  # without ids
    two = device(2, b"\x02\x01", b"\x01\x00")  # with ids
    counts = {
        (1, 0): bytes([1, 2, 0]) + bytes(BLOCK - 3),
        (2, 0): bytes([2, 0, 1]) + bytes(BLOCK - 3),
    }
    verdict = compare([one, two], counts, set())
    assert verdict.lost == ["1-2"]
    assert verdict.doubled == 1
    assert verdict.wrong == ["2-0: 2 times in 2 attempts"]
    assert verdict.unknown == ["2-2"]
    assert compare([one], {(1, 0): counts[1, 0]}, {(1, 2)}).lost == []
