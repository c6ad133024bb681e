"""The overview page: the node's current and past activity."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.project import Project
from tests.support.nodes import RunningNode, until

pytestmark = pytest.mark.timeout(300)


def figure(page: Any, label: str) -> str:
    """Return the text of a tile."""
    tile = page.locator(".tile").filter(has=page.get_by_text(label, exact=True))
    return str(tile.locator(".value").inner_text())


def test_figures_charts_and_projects_tell_what_the_node_does(
    node: RunningNode, signed_in: Open
) -> None:
    project = Project(node)
    page = signed_in(node, "/").page
    project.send(b"t")
    until(
        lambda: figure(page, "Dead letters").isdigit() and figure(page, "Dead letters") != "0",
        "the dead letter is counted",
    )
    until(lambda: figure(page, "Memory").endswith("MiB"), "the memory is shown")
    tiles = page.get_by_role("region", name="Now").locator(".label").all_inner_texts()
    assert tiles == [
        *("Events", "Answer time", "Commit time", "Failed runs", "Dead letters", "Memory"),
    ]

    until(lambda: not figure(page, "Answer time")[0].isdigit(), "it has no answer time")

    charts = page.locator("figure.chart")
    titles = charts.locator("figcaption strong").all_inner_texts()
    assert titles == ["Events", "Answer time", "Commits", "Memory"]
    until(
        lambda: charts.last.locator("li b").first.inner_text()[0].isdigit(), "the chart has a value"
    )
    charts.first.locator(".u-over").hover()
    pointed = charts.first.locator(".at").inner_text
    until(pointed, "the pointer is at a time")
    until(lambda: charts.nth(3).locator(".at").inner_text() == pointed(), "all charts are there")

    page.get_by_role("button", name="24 h").click()
    page.wait_for_url("**?range=24h")
    charts.first.get_by_text("As a table").click()
    charts.first.get_by_role("row").filter(has_text="Failed runs").wait_for()
    heads = charts.first.get_by_role("columnheader").all_inner_texts()
    assert [head for head in heads if head] == ["Latest", "Least", "Most"]

    listed = page.get_by_role("region", name="Projects").get_by_role("link", name=project.name)
    listed.first.click()
    page.wait_for_url(f"**{project.path}")


def test_an_account_sees_the_figures_of_its_projects_and_none_that_it_does_not_get(
    node: RunningNode, visit: Open
) -> None:
    login = {"username": "otto", "password": "correct horse"}
    node.call("POST", "/register/admin", {**login, "role": "DEVELOPER"})
    page = visit(node, "/", expected=["status of 401"]).page
    page.get_by_label("Username").fill("otto")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Sign in", exact=True).click()
    tiles = page.get_by_role("region", name="Now").locator(".label")
    tiles.nth(1).wait_for()
    assert tiles.all_inner_texts() == ["Events", "Failed runs"]
    assert page.locator("figure.chart").count() == 1


def test_on_a_phone_the_navigation_is_behind_a_button(node: RunningNode, signed_in: Open) -> None:
    page = signed_in(node, "/", width=390).page
    navigation = page.get_by_role("navigation", name="Main")
    assert not navigation.is_visible()
    page.get_by_role("button", name="Menu").click()
    navigation.get_by_role("link", name="Health").click()
    page.get_by_role("heading", name="Health", level=1).wait_for()
    navigation.wait_for(state="hidden")
