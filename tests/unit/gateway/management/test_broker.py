"""What the embedded broker keeps for devices, over the routes."""

from __future__ import annotations

from fieldbrook import commands_mqtt, metrics
from fieldbrook.gateway.broker_bounds import KINDS


def test_the_command_line_and_the_metrics_have_every_kind_of_state() -> None:
    assert commands_mqtt.KINDS == KINDS
    assert tuple(metrics.BROKER_KEPT) == KINDS
    assert tuple(metrics.BROKER_KEPT_LIMIT) == KINDS
