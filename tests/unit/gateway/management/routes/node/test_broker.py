"""What the embedded broker keeps for devices, over the routes."""

from __future__ import annotations

from fieldbrook.cli.remote.node import broker as mqtt
from fieldbrook.gateway.mqtt.broker_bounds import KINDS
from fieldbrook.observability import metrics


def test_the_command_line_and_the_metrics_have_every_kind_of_state() -> None:
    assert mqtt.KINDS == KINDS
    assert tuple(metrics.BROKER_KEPT) == KINDS
    assert tuple(metrics.BROKER_KEPT_LIMIT) == KINDS
