"""Traces in the story of an event: started there, and shown with the host calls."""

from __future__ import annotations

import re

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.test_applets import EXAMPLE
from tests.support.nodes import RunningNode, message

pytestmark = pytest.mark.timeout(300)


@pytest.mark.thorough
def test_a_story_starts_a_trace_and_the_next_one_shows_host_calls(
    node: RunningNode, signed_in: Open
) -> None:
    node.create_project("traced")
    node.deploy("traced", EXAMPLE, "counter")
    publisher = node.add_publisher("traced", "sensor")

    def send() -> str:
        answer = node.send("traced", message(publisher, b"21.5"))
        assert answer.status == 201
        event_id: str = answer.headers["X-Event-Id"]
        return event_id

    page = signed_in(node, f"/projects/traced/events/{send()}").page
    page.get_by_text("recorded only while a trace is on").wait_for()
    page.get_by_role("button", name="Trace the next 100 events").click()
    page.get_by_text("Tracing the next 100 events for 10 minutes").wait_for()
    traced = send()
    assert node.call("GET", "/event_log/traced/trace").json["remaining"] == 99

    page.goto(page.url.rpartition("/")[0] + f"/{traced}")
    calls = page.get_by_role("region", name="Host calls, in order")
    calls.wait_for()
    written = calls.get_by_role("row").filter(has_text="ws_set_db")
    assert [cell.inner_text() for cell in written.get_by_role("cell").all()[:3]] == [
        "ws_set_db",
        "count",
        "1 → 2",
    ]
    calls.get_by_role("row").filter(has_text="count=2 payload=21.5").wait_for()
    page.get_by_role("listitem").filter(
        has_text=re.compile(r"returned 0 after [\d.]+ (µs|ms), with 64\.0 KiB of memory")
    ).wait_for()
