"""Fault points: inactive unless armed at the start of a process; each fires once."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from fieldbrook.observability import fault_points

ROOT = Path(__file__).parents[3]


@pytest.fixture
def died(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The signals that this process would have sent to itself."""
    signals: list[int] = []
    monkeypatch.setattr(signal, "pthread_kill", lambda _thread, number: signals.append(number))
    return signals


def test_a_process_that_was_not_asked_to_dies_nowhere(died: list[int]) -> None:
    assert not fault_points.is_armed
    for point in fault_points.POINTS:
        fault_points.hit(point)
        fault_points.hit_function({})(point)
    assert died == []


def test_a_process_dies_the_nth_time_it_comes_to_the_point_and_never_again(
    tmp_path: Path, died: list[int]
) -> None:
    order = tmp_path / "order"
    hit = fault_points.hit_function({fault_points.VARIABLE: str(order)})
    hit("chain.sent")
    order.write_text("chain.sent 2")
    hit("chain.before_send")
    hit("chain.sent")
    assert died == []
    hit("chain.sent")
    assert died == [signal.SIGKILL]
    assert not order.exists()
    hit("chain.sent")
    assert died == [signal.SIGKILL]
    assert (tmp_path / "order.reached").exists()


def test_a_process_may_stand_still_instead(tmp_path: Path, died: list[int]) -> None:
    order = tmp_path / "order"
    order.write_text("project.before_commit 2 hold")
    hit = fault_points.hit_function({fault_points.VARIABLE: str(order)})
    hit("project.before_commit")
    hit("project.before_commit")
    assert died == [signal.SIGSTOP]


def test_every_point_is_in_the_code_once_and_in_the_documentation() -> None:
    folders = ("actors", "gateway", "storage", "chain", "fieldbrook")
    sources = {path.resolve() for folder in folders for path in (ROOT / folder).rglob("*.py")}
    text = "\n".join(path.read_text() for path in sorted(sources))
    found = re.findall(r'fault_points\.hit\(\s*"([a-z_.]+)"', text)
    assert sorted(found) == sorted(fault_points.POINTS)
    page = (ROOT / "docs" / "explanation" / "faults.md").read_text()
    assert [point for point in fault_points.POINTS if f"`{point}`" not in page] == []
