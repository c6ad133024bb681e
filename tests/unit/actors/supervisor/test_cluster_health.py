"""Conditions of the cluster on the board of a host."""

from __future__ import annotations

import pytest

from fieldbrook.actors.messages import ClusterCondition
from fieldbrook.actors.supervisor.cluster_health import ClusterHealth
from fieldbrook.observability import health
from fieldbrook.observability.health import HOLD_S, Board

SILENT = ClusterCondition("host:h2", health.HOST_SILENT, "it was stopped")


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def test_a_report_replaces_the_one_before_it(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    board = Board(clock, lambda: 1)
    board.raise_("registry", health.UNREADABLE, "of its own")
    reported = ClusterHealth(board)
    reported.apply([SILENT, ClusterCondition("registry", health.REGISTRY_BEHIND, "1 change")])
    reported.apply([SILENT, ClusterCondition("registry", health.REGISTRY_BEHIND, "2 changes")])
    states = {(one.part, one.state): one.detail for one in board.active}
    assert states == {
        ("registry", health.UNREADABLE): "of its own",
        ("host:h2", health.HOST_SILENT): "it was stopped",
        ("registry", health.REGISTRY_BEHIND): "2 changes",
    }
    reported.apply([])
    clock.at += HOLD_S
    board.end_cleared()
    assert [one.state for one in board.active] == [health.UNREADABLE]
