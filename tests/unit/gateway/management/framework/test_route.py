"""Finding the route of a request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import NotFoundError
from fieldbrook.gateway.management.framework.route import WrongMethod, find_route
from fieldbrook.gateway.management.route_table import ROUTES


def test_words_win_over_parameters() -> None:
    assert find_route(ROUTES, "GET", "/deploy/applet/5").route.operation == "GetInstanceByAppletID"
    found = find_route(ROUTES, "PUT", "/deploy/applet/5")
    assert (found.route.operation, found.parameters) == (
        "ControlInstance",
        {"instanceID": "applet", "cmd": "5"},
    )


def test_parameters_are_decoded_after_the_path_is_split() -> None:
    assert find_route(ROUTES, "GET", "/project/a%2Fb%20c").parameters == {"projectName": "a/b c"}


@pytest.mark.parametrize("path", ["", "/", "/project/", "/project//x", "/PROJECT", "//project"])
def test_a_path_that_is_none_of_ours_is_not_found(path: str) -> None:
    with pytest.raises(NotFoundError):
        find_route(ROUTES, "GET", path)


def test_another_method_is_told_which_there_are() -> None:
    with pytest.raises(WrongMethod) as wrong:
        find_route(ROUTES, "POST", "/applet/p/5")
    assert wrong.value.allowed == ["GET", "PUT"]


def test_every_route_is_found_under_its_own_pattern_and_is_there_once() -> None:
    for route in ROUTES:
        path = route.pattern.replace("{", "1").replace("}", "1")
        assert find_route(ROUTES, route.method, path).route is route
    assert len({(route.method, route.pattern) for route in ROUTES}) == len(ROUTES)


@given(st.text(max_size=60))
def test_any_path_is_found_or_not_and_never_fails_otherwise(path: str) -> None:
    try:
        find_route(ROUTES, "GET", path)
    except (NotFoundError, WrongMethod):
        return
