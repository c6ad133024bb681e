"""What the page's policy keeps out, in a browser."""

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
    seen.page.get_by_role("heading", name="Overview").wait_for()
    seen.page.locator(".chart canvas").nth(3).wait_for()
    sizes = seen.page.evaluate(
        "Object.fromEntries(performance.getEntriesByType('resource')"
        ".concat(performance.getEntriesByType('navigation'))"
        ".map((entry) => [entry.name, entry.encodedBodySize]))"
    )  # by address: on a slow machine something is already asked for again
    assert len(sizes) <= 30, list(sizes)
    assert sum(sizes.values()) <= 120_000
