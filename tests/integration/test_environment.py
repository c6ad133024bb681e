"""Environment variables of a running project: the next event has the new values."""

from __future__ import annotations

import pytest

from tests.support.applets import COLOUR
from tests.support.nodes import RunningNode, StartNode, message


@pytest.fixture
def node(start_node: StartNode) -> RunningNode:
    return start_node()


def test_an_event_after_the_answer_finds_the_new_variables(node: RunningNode) -> None:
    body = {"name": "paint", "envs": [["COLOUR", "red"]]}
    assert node.call("POST", "/project", body).status == 201
    applet_id = node.deploy("paint", COLOUR)["appletID"]
    publisher = node.add_publisher("paint", "p")

    def colour() -> tuple[int, bytes]:
        answer = node.send("paint", message(publisher))
        assert answer.status == 201
        return answer.json["results"][0]["code"], node.kv("paint", applet_id, b"colour")

    assert colour() == (0, b"red")
    for n in range(20):
        env = {"env": [["COLOUR", f"c{n}"], ["OTHER", "x"]]}
        assert node.call("POST", "/project_config/x/paint/PROJECT_ENV", env).status == 201
        assert colour() == (0, f"c{n}".encode())
    without = {"env": [["OTHER", "x"]]}
    assert node.call("POST", "/project_config/paint/PROJECT_ENV", without).status == 204
    assert colour() == (8, b"c19"), "the variable is gone, the pair of the last event stays"
