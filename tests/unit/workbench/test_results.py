"""Results as lines for users, and the differences between two results."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.workbench.results import changes, cut, lines

TEXTS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=12)


def test_a_result_is_told_in_lines() -> None:
    result = {
        "code": 3,
        "error": "",
        "logs": [["info", "hello"], ["error", "no memory", "host"]],
        "writes": {"count": "1"},
        "effects": [{"kind": "MqttMessage", "topic": "t", "payload": "p" * 300}],
    }
    assert lines(result) == [
        "code     3",
        "log      info: hello",
        "log      error [host]: no memory",
        "write    count = 1",
        f"effect   MqttMessage: topic=t, payload={cut('p' * 300)}",
    ]
    trap = {"code": -1, "error": "unreachable", "logs": [], "writes": {}, "effects": []}
    assert lines(trap) == ["trap     unreachable"]


def test_only_the_lines_that_differ_are_told_in_their_order() -> None:
    before = ["code 0", "log a", "log b", "write x = 1"]
    after = ["code 0", "log a", "log c", "write x = 1", "write y = 2"]
    assert changes(before, after) == ["- log b", "+ log c", "+ write y = 2"]


@given(TEXTS, TEXTS)
def test_there_is_no_change_exactly_when_both_are_the_same(
    before: list[str], after: list[str]
) -> None:
    told = changes(before, after)
    assert (told == []) == (before == after)
    gained = sum(text.startswith("+") for text in told)
    lost = sum(text.startswith("-") for text in told)
    assert gained - lost == len(after) - len(before)


def test_thousands_of_lines_are_compared_as_sets() -> None:
    before = [f"log {number}" for number in range(5_000)]
    assert changes(before, [*before[1:], "log x"]) == ["- log 0", "+ log x"]
