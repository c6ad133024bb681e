"""Metrics over time of a running node with several HTTP gateways."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, StartNode, message, strategies, until


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    running = start_module_node("--http-gateways", "2")
    running.create_project("mine")
    running.deploy("mine", TALLY, strategies=strategies("quiet", "fail"))
    return running


def columns(answer: Any) -> dict[str, list[Any]]:
    return dict(zip(["t", *answer["names"]], answer["columns"], strict=True))


@pytest.mark.thorough
def test_events_show_in_the_series_of_the_node_and_of_their_project(node: RunningNode) -> None:
    publisher = node.add_publisher("mine", "p")
    for kind in ("QUIET", "QUIET", "FAIL"):
        assert node.send("mine", message(publisher, b"", kind)).status == 201

    def counted(query: str) -> tuple[float, float]:
        found = columns(node.call("GET", f"/series?name=events&name=failed{query}").json)
        # A sample is taken about every second, so the sum is near the number of events.
        return sum(found["events"]), sum(found["failed"])

    until(lambda: counted("") > (2, 0.5), "the node has the events")
    until(lambda: counted("&project=mine") > (2, 0.5), "the project has the events")
    found = node.call("GET", "/series?step=1").json
    assert found["step"] == 1
    assert set(found["projects"]) == {"mine"}
    now = {name: column[-1] for name, column in columns(found).items()}
    assert min(now["memoryGateways"], now["memoryProjects"], now["memoryRest"]) > 1 << 20
    assert any(value for value in columns(found)["eventP99Ms"])


def test_every_gateway_process_gives_the_series_of_the_one_that_samples(node: RunningNode) -> None:
    query = "/series?name=events&step=1"
    until(lambda: node.call("GET", query).json["columns"][0], "there is a sample")
    # Each request uses a new connection, and the kernel distributes these to both processes.
    answers = [node.call("GET", query) for _ in range(20)]
    assert {answer.status for answer in answers} == {200}
    begins = {answer.json["columns"][0][0] for answer in answers}
    assert len(begins) == 1
