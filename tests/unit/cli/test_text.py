"""Text for a terminal."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.cli.text import as_json, printable


@given(st.text())
def test_printable_text_has_no_control_character_and_plain_text_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert all(c.isprintable() or c == "\t" for c in shown)
    assert printable(shown) == shown


@given(st.text(), st.sampled_from([None, 2]))
def test_printed_json_cannot_control_a_terminal_and_has_the_same_value(
    text: str, indent: int | None
) -> None:
    value = {"text": [text, "\x9b31m\x7f\u202e\U000e0001"]}
    shown = as_json(value, indent)
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert json.loads(shown) == value
