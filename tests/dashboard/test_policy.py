"""What the page's content security policy blocks, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard.conftest import Open
from tests.support.nodes import RunningNode

pytestmark = pytest.mark.timeout(300)
JS = Path(__file__).parent / "js"


def test_injected_scripts_and_markup_have_no_effect(node: RunningNode, signed_in: Open) -> None:
    seen = signed_in(node, expected=["violates", "TrustedHTML", "TrustedScript"])
    outcomes = seen.page.evaluate((JS / "injections.js").read_text())
    assert outcomes == ["TypeError", "TypeError", "TypeError", "TypeError"]


def test_a_first_page_is_small(node: RunningNode, signed_in: Open) -> None:
    seen = signed_in(node)
    seen.page.locator(".actions .badge").get_by_text("problem").wait_for()
    seen.page.locator(".chart canvas").nth(3).wait_for()
    steps = seen.page.get_by_role("region", name="First steps")
    steps.or_(seen.page.locator(".list td")).first.wait_for()
    sizes = seen.page.evaluate((JS / "requests.js").read_text())
    assert len(sizes) + 1 <= 30, list(sizes)  # and the WebSocket
    assert sum(sizes.values()) <= 120_000
