"""The node's own log."""

import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.observability.logs import JsonFormatter, RateLimitedLog, TextFormatter


def record(text: str, *, failed: bool = False, cause: str = "cause") -> logging.LogRecord:
    made = logging.LogRecord("a.b", logging.ERROR, "f", 1, "said %s", (text,), None)
    if failed:
        try:
            raise ValueError(cause)
        except ValueError:
            made.exc_info = sys.exc_info()
    return made


@given(st.text())
def test_whatever_a_device_sent_stays_on_one_line(text: str) -> None:
    line = TextFormatter().format(record(text))
    assert line.isprintable()
    assert JsonFormatter().format(record(text)).isprintable()
    assert json.loads(JsonFormatter().format(record(text)))["message"] == f"said {text}"


def test_a_line_tells_when_how_grave_and_where() -> None:
    line = TextFormatter().format(record("hello"))
    time, level, name, message = line.split(maxsplit=3)
    assert time.endswith("Z")
    assert (level, name, message) == ("ERROR", "a.b:", "said hello")


def test_a_failure_keeps_its_traceback() -> None:
    assert "ValueError: cause" in TextFormatter().format(record("x", failed=True))
    assert (
        "ValueError: cause" in json.loads(JsonFormatter().format(record("x", failed=True)))["error"]
    )


@given(st.text())
def test_the_text_of_an_exception_forges_no_line(text: str) -> None:
    failed = record("x", failed=True, cause=text)
    first, *others = TextFormatter().format(failed).split("\n")
    assert first.isprintable()
    assert all(line.isprintable() and line.startswith("  ") for line in others)
    line = JsonFormatter().format(failed)
    assert line.isprintable()
    assert text.rstrip("\n") in json.loads(line)["error"]


def test_a_mark_of_direction_is_escaped() -> None:
    assert TextFormatter().format(record("\u202egnp\U000e0041")).endswith("\\u202egnp\\U000e0041")
    assert JsonFormatter().format(record("\u202e\x7f")).count("\\u") == 2


def test_a_flood_of_warnings_is_one_line_per_interval_with_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    flood = RateLimitedLog(logging.getLogger("a.b"), 60.0, lambda: now)
    for _ in range(1_000):
        flood.warning("said %s", "no")
    now = 60.0
    flood.warning("said %s", "no")
    now = 120.0
    flood.warning("said %s", "yes")
    assert [record.getMessage() for record in caplog.records] == [
        "said no",
        "said no (999 more times since the last such line)",
        "said yes",
    ]
