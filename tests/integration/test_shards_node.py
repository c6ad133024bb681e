"""Shards in a running node: killed under load, and replaced with their module."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.heavy import KEYS, Load, module, shards_of
from tests.support.nodes import RunningNode, StartNode, alive, message, part_of, until


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    return start_module_node("--shards", "3")


def counted(node: RunningNode, project: str, applet: str) -> int:
    values = [node.kv(project, applet, KEYS[n : n + 1]) for n in range(len(KEYS))]
    return sum(int.from_bytes(value, "little") for value in values)


def test_shards_that_are_killed_under_load_cost_no_event_and_none_counts_twice(
    node: RunningNode,
) -> None:
    node.create_project("killed")
    applet = node.deploy("killed", module(3))["appletID"]
    dead: set[int] = set()
    with Load(node, "killed") as load:
        while len(dead) < 4:
            pid = until(lambda: (set(shards_of(node)) - dead) and max(shards_of(node)), "a shard")
            os.kill(pid, signal.SIGKILL)
            dead.add(pid)
    assert set(load.codes) == {3}
    assert counted(node, "killed", applet) == len(load.codes)
    assert node.log.count("the project's process runs its events") >= 1


def test_what_is_sent_after_a_module_was_replaced_meets_it_in_every_shard(
    node: RunningNode,
) -> None:
    node.create_project("replaced")
    applet = node.deploy("replaced", module(0))["appletID"]
    before = set(shards_of(node))  # of the other tests' projects
    with Load(node, "replaced") as load:
        until(lambda: load.codes and set(shards_of(node)) - before, "shards that run events")
        for mark in range(1, 6):
            assert node.redeploy(applet, module(mark)).status == 200
            assert set(load.send()) == {mark}
    assert set(load.codes) == set(range(6))
    assert counted(node, "replaced", applet) == len(load.codes)


def test_shards_die_with_their_project(node: RunningNode) -> None:
    node.create_project("mortal")
    node.deploy("mortal", module(3))
    before = set(shards_of(node))
    projects = {pid for pid in node.processes() if part_of(pid) == "fb-project"}
    load = Load(node, "mortal")

    def mine() -> set[int]:
        load.send()
        return set(shards_of(node)) - before

    shards = until(mine, "shards")
    owner = next(p for p in node.processes() if part_of(p) == "fb-project" and p not in projects)
    os.kill(owner, signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in shards), "they are gone")
    one = message(load.publishers[0], KEYS[:1])
    until(lambda: node.send("mortal", one).status == 201, "the project is back")
    assert set(load.send()) == {3}
