"""Look-ahead in a running node while modules are replaced."""

from __future__ import annotations

import re

import pytest

from tests.support.heavy import KEYS, Load, module
from tests.support.nodes import RunningNode, StartNode, until


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    return start_module_node("--handler-threads", "3", "--workers", "1")


def counted(node: RunningNode, project: str, applet: str) -> int:
    values = [node.kv(project, applet, KEYS[n : n + 1]) for n in range(len(KEYS))]
    return sum(int.from_bytes(value, "little") for value in values)


def kept(node: RunningNode) -> float:
    """Return how many runs of other threads were used so far."""
    page = node.call("GET", "/metrics").body
    found = re.search(rb'\nfieldbrook_look_ahead_runs_total\{result="kept"\} (.+)\n', page)
    return float(found[1]) if found else 0.0


@pytest.mark.thorough
def test_what_is_sent_after_a_module_was_replaced_meets_it_in_every_thread(
    node: RunningNode,
) -> None:
    node.create_project("replaced")
    applet = node.deploy("replaced", module(0))["appletID"]
    before = kept(node)
    with Load(node, "replaced") as load:
        until(lambda: kept(node) > before, "other threads run events")
        for mark in range(1, 6):
            assert node.redeploy(applet, module(mark)).status == 200
            assert set(load.send()) == {mark}
    assert set(load.codes) == set(range(6))
    assert counted(node, "replaced", applet) == len(load.codes)
