"""The list of projects, with failures and owners."""

from __future__ import annotations

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.project import Project
from tests.support.nodes import RunningNode

pytestmark = pytest.mark.timeout(300)


@pytest.mark.thorough
def test_dead_letters_are_listed_and_owners_where_there_are_several(
    node: RunningNode, signed_in: Open, visit: Open
) -> None:
    project = Project(node)
    project.send(b"t")
    login = {"username": "vera", "password": "correct horse"}
    node.call("POST", "/register/admin", {**login, "role": "DEVELOPER"})
    token = node.call("PUT", "/login", login).json["token"]
    assert node.call("POST", "/project", {"name": "veras"}, token=token).status == 201

    page = signed_in(node, "/projects").page
    table = page.get_by_role("region", name="Projects")
    table.get_by_role("columnheader", name="Owner").wait_for()
    table.get_by_role("row").filter(has_text="veras").get_by_text("vera", exact=True).wait_for()
    row = table.get_by_role("row").filter(has_text=project.name)
    row.get_by_role("link", name="1", exact=True).click()
    page.wait_for_url(f"**{project.path}/letters")

    page = visit(node, "/projects", expected=["status of 401"]).page
    page.get_by_label("Username").fill("vera")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Sign in", exact=True).click()
    own = page.get_by_role("region", name="Projects")
    own.get_by_role("row").filter(has_text="veras").wait_for()
    assert own.get_by_role("row").count() == 2
    assert own.get_by_role("columnheader", name="Owner").count() == 0
