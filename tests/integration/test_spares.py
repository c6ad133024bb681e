"""Spare processes: a project starts in a process that was made ready before."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, StartNode, message, parts, strategies, until

DEFAULT = strategies(DEFAULT="quiet")


def spare(node: RunningNode) -> int | None:
    return parts(node).get("fb-spare")


@pytest.fixture
def node(start_node: StartNode) -> RunningNode:
    return start_node(command="node", logged_in=False)


def test_a_project_starts_in_the_spare_process_and_another_spare_takes_its_place(
    node: RunningNode,
) -> None:
    node.log_in()
    node.create_project("p")
    node.deploy("p", TALLY, strategies=DEFAULT)
    device = node.add_publisher("p", "k")
    ready = until(lambda: spare(node), "a spare")
    assert node.send("p", message(device)).status == 201
    assert parts(node)["fb-project"] == ready
    until(lambda: spare(node), "another spare")


def test_a_spare_that_dies_costs_no_event_and_is_replaced(node: RunningNode) -> None:
    node.log_in()
    node.create_project("p")
    applet = node.deploy("p", TALLY, strategies=DEFAULT)["appletID"]
    device = node.add_publisher("p", "k")
    ready = until(lambda: spare(node), "a spare")
    os.kill(ready, signal.SIGKILL)
    assert node.send("p", message(device)).status == 201
    assert node.count("p", applet) == 1
    assert until(lambda: spare(node), "another spare") != ready


def test_a_node_without_spares_has_none(start_node: StartNode) -> None:
    node = start_node("--spare-projects", "0", command="node")
    node.create_project("p")
    node.deploy("p", TALLY, strategies=DEFAULT)
    assert node.send("p", message(node.add_publisher("p", "k"))).status == 201
    assert spare(node) is None
