"""What the page shows when the node hangs, is upgraded, or has a full disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import session_of
from tests.support.browser import Visit
from tests.support.disks import MIB, fill, small_disk
from tests.support.nodes import RunningNode, StartNode, part_of

pytestmark = pytest.mark.timeout(300)
DASHBOARD = Path(__file__).parents[2] / "dashboard"
AWAY = ["ERR_CONNECTION", "ERR_EMPTY", "ERR_SOCKET", "WebSocket", "ERR_INTERNET"]


def open_page(browser: Any, node: RunningNode, path: str = "/", *expected: str) -> Visit:
    address = f"http://localhost:{node.dashboard_port}"
    seen = Visit(browser, address, expected=[*AWAY, *expected])
    kept = json.dumps(session_of(node))
    seen.context.add_init_script(f"sessionStorage['fieldbrook.session'] ??= {kept}")
    seen.page.goto(address + path)
    seen.page.locator("#main h1").wait_for()
    return seen


def test_a_gateway_that_hangs_is_told_and_the_page_recovers(
    start_node: StartNode, browser: Any
) -> None:
    node = start_node()
    seen = open_page(browser, node)
    (gateway,) = [pid for pid in node.processes() if part_of(pid) == "fb-http:0"]
    os.kill(gateway, signal.SIGSTOP)  # the node replaces it within ten seconds
    strip = seen.page.get_by_text(re.compile("The node (takes long to|does not) answer"))
    strip.wait_for()
    strip.wait_for(state="detached")
    seen.page.get_by_role("heading", name="Overview").wait_for()
    seen.close()


@pytest.mark.thorough
def test_a_page_whose_files_are_late_is_told_and_opens_by_itself(
    start_node: StartNode, browser: Any
) -> None:
    node = start_node()
    seen = open_page(browser, node)
    seen.page.wait_for_load_state("networkidle")
    (gateway,) = [pid for pid in node.processes() if part_of(pid) == "fb-http:0"]
    os.kill(gateway, signal.SIGSTOP)
    seen.page.get_by_role("link", name="Health").click()  # its module and style were never loaded
    seen.page.get_by_text(re.compile("The node (takes long to|does not) answer")).wait_for()
    seen.page.get_by_role("heading", name="Health", level=1).wait_for()
    assert seen.page.get_by_role("alert").count() == 0
    seen.close()


@pytest.mark.thorough
def test_a_node_that_answers_late_is_told_as_slow_and_not_as_gone(
    start_node: StartNode, browser: Any
) -> None:
    node = start_node("--watchdog-s", "60")
    seen = open_page(browser, node)
    (gateway,) = [pid for pid in node.processes() if part_of(pid) == "fb-http:0"]
    os.kill(gateway, signal.SIGSTOP)
    try:
        seen.page.get_by_role("link", name="All projects").click()
        strip = seen.page.get_by_text("The node takes long to answer")
        strip.wait_for()
        assert seen.page.get_by_text("The node does not answer").count() == 0
    finally:
        os.kill(gateway, signal.SIGCONT)
    strip.wait_for(state="detached")
    seen.page.get_by_role("heading", name="Projects", level=1).wait_for()
    assert seen.page.get_by_text("The node does not answer").count() == 0
    seen.close()


@pytest.mark.thorough
def test_a_page_of_another_version_offers_to_reload(
    start_node: StartNode, browser: Any, tmp_path: Path
) -> None:
    served = tmp_path / "dashboard"
    shutil.copytree(DASHBOARD, served)
    node = start_node("--ui", str(served))
    seen = open_page(browser, node, "/", "status of 404")
    (served / "app.js").write_text((served / "app.js").read_text() + "// another version\n")
    seen.context.set_offline(True)
    seen.page.get_by_text("The node does not answer").wait_for()
    seen.context.set_offline(False)
    strip = seen.page.get_by_text("The node runs a new version")
    strip.wait_for()
    seen.page.get_by_role("button", name="Reload this page").click()
    strip.wait_for(state="detached")
    seen.page.get_by_role("heading", name="Overview").wait_for()
    seen.close()


@pytest.mark.thorough
def test_a_full_disk_is_told_where_something_should_be_stored(
    start_node: StartNode, browser: Any, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "n", 96 * MIB) as mounted:
        node = start_node("--disk-reserve-bytes", str(4 * MIB))
        seen = open_page(browser, node, "/projects?new=1", "status of 507", "status of 503")
        filler = fill(mounted)
        dialog = seen.page.get_by_role("dialog", name="New project")
        dialog.get_by_label("Name").fill("kept_name")
        dialog.get_by_role("button", name="New project").click()
        dialog.get_by_role("alert").filter(has_text="disk").wait_for()
        assert dialog.get_by_label("Name").input_value() == "kept_name"
        filler.unlink()
        dialog.get_by_role("button", name="New project").click()
        seen.page.wait_for_url("**/projects/kept_name/applets")
        seen.close()
        node.stop()
