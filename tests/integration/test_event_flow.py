"""The flow of a project's events, over real HTTP."""

from __future__ import annotations

import pytest

from tests.support.management import User


def test_a_flow_is_for_the_owner_of_the_project_and_administrators(
    ada: User, bob: User, root: User
) -> None:
    ada.project("flowing")
    for caller, status in ((ada, 200), (root, 200), (bob, 404)):
        assert caller("GET", "/event_log/flowing/flow").status == status
    assert ada("GET", "/event_log/nowhere/flow").status == 404


@pytest.mark.parametrize("seconds", ["9", "3601", "-1", "x"])
def test_a_time_that_is_out_of_range_is_refused(ada: User, seconds: str) -> None:
    ada.project("flowing")
    refused = ada("GET", f"/event_log/flowing/flow?seconds={seconds}")
    assert (refused.status, list(refused.fields)) == (400, ["seconds"])


def test_without_events_the_flow_has_the_applets_with_what_they_can_do(ada: User) -> None:
    ada.project("flowing")
    applet = ada.applet("flowing")
    answer = ada("GET", "/event_log/flowing/flow?seconds=60").json
    assert answer["applets"] == [{"appletID": applet["appletID"], "effects": []}]
    assert answer["types"] == answer["sources"] == answer["handlers"] == answer["sends"] == []
