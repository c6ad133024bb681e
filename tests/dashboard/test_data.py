"""The keys and values of a project: shown, changed, added, deleted."""

from __future__ import annotations

import json

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.project import Project
from tests.support.nodes import MODULES, RunningNode, message

pytestmark = pytest.mark.timeout(300)


@pytest.mark.thorough
def test_keys_are_found_by_prefix_and_changed(node: RunningNode, signed_in: Open) -> None:
    project = Project(node)
    project.send(b"ck")
    page = signed_in(node, f"{project.path}/data").page
    table = page.get_by_role("region", name="Key-value pairs")
    table.get_by_role("row").filter(has_text="bytes").wait_for()

    page.get_by_role("button", name="Add a key").click()
    dialog = page.get_by_role("dialog", name="Add a key")
    dialog.get_by_label("Key").fill("limits/upper")
    dialog.get_by_label("Value").fill('{"celsius": 30}')
    dialog.get_by_role("button", name="Save").click()
    table.get_by_role("row").filter(has_text="JSON").wait_for()
    page.get_by_label("Prefix of the key").fill("limits/")
    page.wait_for_url("**prefix=limits%2F")
    table.get_by_role("row").filter(has_text="bytes").wait_for(state="detached")

    table.get_by_role("button", name="limits/upper").click()
    panel = page.get_by_role("dialog", name="Key and value")
    panel.get_by_role("button", name="Change").click()
    panel.get_by_label("Value").fill("31.5")
    panel.get_by_role("button", name="Save").click()
    table.get_by_role("row").filter(has_text="number").wait_for()
    assert node.kv(project.name, project.applet["appletID"], b"limits/upper") == b"31.5"

    table.get_by_role("button", name="limits/upper").click()
    panel.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog", name="Delete").get_by_role("button", name="Delete").click()
    page.get_by_text("No key has this prefix").wait_for()
    assert node.kv(project.name, project.applet["appletID"], b"limits/upper") == b""


SCHEMA = {
    "tables": [
        {
            "name": "t_readings",
            "cols": [
                {"name": "f_id", "constrains": {"datatype": "INT64", "autoincrement": True}},
                {"name": "f_celsius", "constrains": {"datatype": "FLOAT64"}},
            ],
            "keys": [{"name": "primary", "isUnique": True, "columnNames": ["f_id"]}],
        }
    ]
}


def test_a_schema_is_written_and_a_wrong_one_refused(node: RunningNode, signed_in: Open) -> None:
    project = Project(node)
    page = signed_in(node, f"{project.path}/data", expected=["status of 4"]).page
    page.get_by_role("button", name="Edit the schema").click()
    dialog = page.get_by_role("dialog", name="Schema of the project")
    editor = dialog.get_by_role("textbox")
    editor.fill("{")
    dialog.get_by_role("button", name="Save").click()
    dialog.get_by_role("alert").filter(has_text="JSON").wait_for()
    editor.fill(json.dumps({"schemas": [{"schema": "public", **SCHEMA}]}))
    dialog.get_by_role("button", name="Save").click()
    page.get_by_role("status").filter(has_text="Schema saved").wait_for()
    page.get_by_role("button", name="t_readings").wait_for()
    (table,) = node.call("GET", f"/sql/{project.name}").json["data"]
    assert table["name"] == "t_readings"


@pytest.mark.thorough
def test_tables_are_sorted_filtered_and_queried(node: RunningNode, signed_in: Open) -> None:
    project = Project(node)
    path = f"/project_config/x/{project.name}/PROJECT_DATABASE"
    schema = {"schemas": [{"schema": "public", **SCHEMA}]}
    assert node.call("POST", path, schema).status == 201
    module = (MODULES / "sql.wat").read_bytes()
    node.deploy(project.name, module, "sql", strategies=[{"eventType": "SET", "handler": "set"}])
    for celsius in (21.5, 19.25, 30.0):
        statement = "INSERT INTO t_readings (f_celsius) VALUES (?)"
        request = {"statement": statement, "params": [{"float64": celsius}]}
        sent = message(project.publishers["sensor-1"], json.dumps(request).encode(), "SET")
        assert node.send(project.name, sent).status == 201

    seen = signed_in(node, f"{project.path}/data", expected=["status of 400"])
    page = seen.page
    rows = page.get_by_role("region", name="Rows of t_readings").get_by_role("row")
    rows.nth(3).wait_for()
    page.get_by_role("button", name="Sort by f_celsius").click()
    page.wait_for_url("**order=f_celsius")
    rows.nth(1).filter(has_text="19.25").wait_for()
    page.get_by_label("Column to filter by").select_option("f_celsius")
    page.get_by_label("equals").fill("30.0")
    page.get_by_label("equals").press("Enter")
    rows.nth(2).wait_for(state="detached")
    rows.nth(1).filter(has_text="30").wait_for()

    page.get_by_role("button", name="Query").click()
    dialog = page.get_by_role("dialog", name="Query")
    dialog.get_by_label("Query", exact=False).first.fill(
        "SELECT max(f_celsius) AS top FROM t_readings"
    )
    dialog.get_by_role("button", name="Run").click()
    dialog.get_by_role("row").nth(1).filter(has_text="30").wait_for()
    dialog.get_by_role("textbox").fill("DELETE FROM t_readings")
    dialog.get_by_role("button", name="Run").click()
    page.locator(".toast.bad").wait_for()
    assert node.call("GET", f"/sql/{project.name}").json["data"][0]["rows"] == 3
