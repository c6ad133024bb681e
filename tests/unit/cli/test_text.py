"""Text for a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.cli.text import printable


@given(st.text())
def test_printable_text_has_no_control_character_and_plain_text_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert all(c.isprintable() or c == "\t" for c in shown)
    assert printable(shown) == shown
