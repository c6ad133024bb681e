"""The pages of the node: health, accounts, access keys, audit log, refused events, and more."""

from __future__ import annotations

import os
import re
import signal
from urllib.parse import quote

import pytest

from tests.dashboard.conftest import Open
from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, message, until

pytestmark = pytest.mark.timeout(300)
HOSTS = re.compile("runs [1-9]")


@pytest.mark.thorough
def test_health_shows_each_process_with_its_memory(node: RunningNode, signed_in: Open) -> None:
    page = signed_in(node, "/node/health").page
    page.get_by_role("heading", name="Health").wait_for()
    processes = page.get_by_role("region", name="Processes")
    for part in ("supervisor", "registry", "worker:0", "http:0", "mqtt:0", "scheduler"):
        row = processes.get_by_role("row").filter(has_text=part)
        row.get_by_text("MiB").wait_for()
        row.get_by_text("up", exact=True).wait_for()
    row.get_by_text("%").wait_for()  # once two answers have been compared


@pytest.mark.thorough
def test_health_shows_which_worker_runs_a_project(node: RunningNode, signed_in: Open) -> None:
    node.create_project("hosted")
    node.deploy("hosted", TALLY)
    publisher = node.add_publisher("hosted", "d")
    assert node.send("hosted", message(publisher)).status == 201
    page = signed_in(node, "/node/health").page
    row = page.get_by_role("region", name="Projects").get_by_role("row").filter(has_text="hosted")
    row.get_by_text("worker:").wait_for()
    row.get_by_text("%").wait_for()
    page.get_by_role("region", name="Processes").get_by_text(HOSTS).first.wait_for()


@pytest.mark.thorough
def test_an_account_is_made_changed_disabled_and_deleted(
    node: RunningNode, signed_in: Open
) -> None:
    taken = "409"  # the console tells of a username that exists already
    page = signed_in(node, "/node/accounts", expected=[taken]).page
    page.get_by_role("button", name="New account").click()
    dialog = page.get_by_role("dialog", name="New account")
    dialog.get_by_label("Username").fill("admin")
    dialog.get_by_label("Password").fill("long enough")
    dialog.get_by_role("button", name="New account").click()
    dialog.get_by_text("username admin").wait_for()
    dialog.get_by_label("Username").fill("maria")
    dialog.get_by_role("button", name="New account").click()
    page.get_by_role("status").filter(has_text="Account maria created").wait_for()

    page.get_by_role("link", name="maria").click()
    panel = page.get_by_role("dialog", name="maria")
    panel.get_by_role("button", name="Change the limit of projects", exact=True).click()
    limit = page.get_by_role("dialog", name="Change the limit of projects")
    limit.get_by_label("Which limit").select_option("own")
    limit.get_by_label("Limit", exact=True).fill("3")
    limit.get_by_role("button", name="Save").click()
    panel.get_by_text("this account").wait_for()

    panel.get_by_role("button", name="Change role").click()
    page.get_by_role("button", name="Administrator").click()
    panel.get_by_text("Administrator").wait_for()
    panel.get_by_role("button", name="End logins").click()
    page.get_by_role("dialog", name="End logins").get_by_role("button", name="End logins").click()
    page.get_by_role("status").filter(has_text="All logins have ended").wait_for()
    panel.get_by_role("button", name="Disable").click()
    page.get_by_role("dialog", name="Disable maria").get_by_role("button", name="Disable").click()
    panel.get_by_text("disabled", exact=True).wait_for()

    panel.get_by_role("button", name="Delete").click()
    ask = page.get_by_role("dialog", name="Delete maria")
    assert ask.get_by_role("button", name="Delete").is_disabled()
    ask.get_by_label("Type maria to confirm").fill("maria")
    ask.get_by_role("button", name="Delete").click()
    page.get_by_role("link", name="maria").wait_for(state="detached")
    names = [row["username"] for row in node.call("GET", "/account?size=-1").json["data"]]
    assert "maria" not in names


def test_an_access_key_is_shown_once_works_and_is_deleted(
    node: RunningNode, signed_in: Open
) -> None:
    page = signed_in(node, "/node/keys").page
    page.get_by_role("button", name="New key").click()
    dialog = page.get_by_role("dialog", name="New key")
    dialog.get_by_label("Name").fill("ci")
    dialog.get_by_label("Valid for").select_option("7 days")
    dialog.get_by_label("Project", exact=True).select_option("READONLY")
    dialog.get_by_role("button", name="New key").click()
    shown = page.get_by_role("dialog", name="ci").get_by_role("region", name="Access key")
    key = shown.inner_text().strip()
    assert node.call("GET", "/project", token=key).status == 200
    assert node.call("GET", "/audit", token=key).status == 403
    page.get_by_role("button", name="I have copied it").click()
    row = page.get_by_role("row").filter(has_text="ci")
    row.get_by_text("in 6 days").wait_for()

    page.get_by_role("button", name="Delete key ci").click()
    ask = page.get_by_role("dialog", name="Delete key ci")
    ask.get_by_role("button", name="Delete").click()
    page.get_by_text("Key ci deleted").wait_for()
    assert node.call("GET", "/project", token=key).status in (401, 404)


def test_the_audit_log_is_filtered_in_the_address(node: RunningNode, signed_in: Open) -> None:
    node.create_project("audited")
    page = signed_in(node, "/node/audit").page
    page.get_by_label("Part of the path").fill("/project")
    page.get_by_label("Part of the path").press("Enter")
    page.get_by_label("Operation").fill("CreateProject")
    page.get_by_label("Operation").press("Enter")
    page.wait_for_url("**/node/audit?path=%2Fproject&operation=CreateProject")
    page.get_by_role("row").filter(has_text="CreateProject").first.wait_for()
    page.get_by_label("Outcome").select_option("REFUSED")
    page.get_by_text("No entries").wait_for()
    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_url("**/node/audit")


def test_refused_events_are_listed_with_their_reason(node: RunningNode, signed_in: Open) -> None:
    sent = {
        "header": {"event_type": "T", "pub_id": "x", "token": "y", "pub_time": 1},
        "payload": "",
    }
    assert node.send("nowhere_at_all", sent).status >= 400
    until(lambda: node.call("GET", "/refused_event").json["data"], "it is recorded")
    page = signed_in(node, "/node/refused").page
    row = page.get_by_role("row").filter(has_text="nowhere_at_all").first
    row.get_by_role("link").wait_for()
    page.get_by_label("Project").fill("other")
    page.get_by_label("Project").press("Enter")
    page.get_by_text("No refused events").wait_for()


def test_chains_can_be_absent_and_an_operator_is_made_and_deleted(
    node: RunningNode, signed_in: Open
) -> None:
    page = signed_in(node, "/node/chains").page
    page.get_by_text("No chains").wait_for()
    page.get_by_role("button", name="Generate a key").click()
    dialog = page.get_by_role("dialog", name="Generate a key")
    dialog.get_by_label("Name").fill("payer")
    dialog.get_by_role("button", name="Generate a key").click()
    row = page.get_by_role("row").filter(has_text="payer")
    row.get_by_text("0x").wait_for()
    row.get_by_role("button", name="Delete operator payer").click()
    ask = page.get_by_role("dialog", name="Delete operator payer")
    ask.get_by_label("Type payer to confirm").fill("payer")
    ask.get_by_role("button", name="Delete").click()
    row.wait_for(state="detached")


def test_settings_show_where_each_value_came_from_and_are_filtered_in_the_address(
    node: RunningNode, signed_in: Open
) -> None:
    page = signed_in(node, "/node/settings").page
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="http_port", exact=True))
    row.get_by_text(str(node.http_port), exact=True).wait_for()
    row.get_by_text("8888", exact=True).wait_for()
    row.get_by_text("option", exact=True).wait_for()
    page.get_by_role("link", name="deadline_ms", exact=True).wait_for()
    page.get_by_label("Only changed").check()
    page.get_by_role("link", name="deadline_ms", exact=True).wait_for(state="detached")
    page.get_by_label("Filter by name, value or text").fill("http port")
    page.wait_for_url("**/node/settings?changed=1&name=http+port")
    row.wait_for()
    page.get_by_text("As a command").click()
    page.get_by_text("fieldbrook settings --changed 'http port'").wait_for()
    page.get_by_label("Filter by name, value or text").fill("no such word")
    page.get_by_text("No setting matches").wait_for()


@pytest.mark.thorough
def test_the_log_of_all_processes_is_filtered_and_followed(
    node: RunningNode, signed_in: Open
) -> None:
    page = signed_in(node, "/node/log").page
    table = page.get_by_role("region", name="Node log")
    source = table.get_by_role("row").nth(1).get_by_role("button")
    process = source.inner_text()
    source.click()
    page.wait_for_url(f"**/node/log?process={quote(process)}")
    page.get_by_label("Process").fill("node")
    page.get_by_label("Process").press("Enter")
    page.wait_for_url("**/node/log?process=node")
    ready = table.get_by_role("row").filter(has_text=f"listen on :{node.http_port}")
    page.get_by_label("Part of the text").fill("LISTEN on")
    page.get_by_label("Part of the text").press("Enter")
    page.wait_for_url("**/node/log?process=node&contains=LISTEN+on")
    ready.wait_for()
    page.get_by_text("As a command").click()
    page.get_by_text(
        "fieldbrook node-log --contains 'LISTEN on' --process node --follow"
    ).wait_for()
    page.get_by_label("Level").select_option("Errors")
    page.get_by_text("No lines").wait_for()

    # A process that dies: its end appears while the page is open.
    page.goto(page.url.split("?")[0] + "?process=supervisor&contains=SIGKILL")
    page.get_by_text("No lines").wait_for()
    (mqtt,) = (
        row for row in node.call("GET", "/health").json["processes"] if row["part"] == "mqtt:0"
    )
    os.kill(mqtt["pid"], signal.SIGKILL)
    table.get_by_role("row").filter(has_text="mqtt:0").first.wait_for()
