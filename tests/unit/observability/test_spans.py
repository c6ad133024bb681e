"""Spans: parsing of `traceparent`, the choice of traced events, and a queue that never blocks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings import Settings, load
from fieldbrook.observability import metrics, spans
from fieldbrook.observability.span import Span
from fieldbrook.observability.spans import Joined, Parent, Spans, read_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def span(name: str = "a") -> Span:
    return Span(name, spans.INTERNAL, bytes(24), b"", 1, 2, {})


def test_a_traceparent_names_the_span_of_the_sender() -> None:
    found = read_traceparent(GOOD)
    assert found == Parent(bytes.fromhex(TRACE), bytes.fromhex(SPAN), True)
    assert read_traceparent(f"00-{TRACE}-{SPAN}-00") == found._replace(sampled=False)
    assert read_traceparent(f"00-{TRACE}-{SPAN}-ff") == found, "other flags do not count"
    assert read_traceparent(f"cc-{TRACE}-{SPAN}-01-of-a-later-version") == found


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "-",
        GOOD.upper(),
        GOOD[:-1],
        f"{GOOD}-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE[:-1]}\u0661-{SPAN}-01",
        f"{GOOD}, {GOOD}",
    ],
)
def test_an_invalid_traceparent_counts_as_none(wrong: str) -> None:
    assert read_traceparent(wrong) is None


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    found = read_traceparent(text)
    assert found is None or (len(found.trace), len(found.span)) == (16, 8)


def test_the_sender_decides_and_without_one_the_ratio() -> None:
    never, always = Spans(0.0, 64), Spans(1.0, 64)
    assert never.begin() is None
    root = always.begin()
    assert root is not None
    assert (len(root[0]), root[1]) == (24, b"")
    parent = read_traceparent(GOOD)
    assert parent is not None
    never.parent = parent
    begun = never.begin()
    assert begun is not None
    context, above = begun
    assert (context[:16], above) == (parent.trace, parent.span)
    assert context[16:] != parent.span
    always.parent = parent._replace(sampled=False)
    assert always.begin() is None


def test_half_of_the_events_are_about_half() -> None:
    some = Spans(0.5, 64)
    assert 300 < sum(some.begin() is not None for _ in range(1_000)) < 700


def test_a_full_queue_drops_and_counts_the_new_spans() -> None:
    queue = Spans(1.0, 64)
    row = metrics.here.row
    before = row[metrics.SPANS["full"]]
    for number in range(100):
        queue.add(span(str(number)))
    assert row[metrics.SPANS["full"]] - before == 36
    assert [each.name for each in queue.take()] == [str(number) for number in range(64)]
    assert queue.take() == []


@pytest.mark.parametrize("placed_first", [True, False])
def test_a_span_is_made_of_its_place_and_its_work_in_either_order(
    placed_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, joined, context = Spans(1.0, 64), Joined(), bytes(range(24))
    monkeypatch.setattr(spans, "here", queue)
    steps: list[Callable[[], None]] = [
        lambda: joined.place("tx", context),
        lambda: joined.done("tx", spans.SUBMIT, spans.CLIENT, 1, {"a": "b"}),
    ]
    for step in steps if placed_first else reversed(steps):
        assert queue.take() == []
        step()
    (made,) = queue.take()
    assert (made.context[:16], made.parent) == (context[:16], context[16:])
    assert (made.name, made.began_ns, made.attributes) == (spans.SUBMIT, 1, {"a": "b"})
    joined.done("tx", spans.SUBMIT, spans.CLIENT, 1, {})
    assert queue.take() == [], "it was sent again, which is no second span"


def test_halves_of_spans_are_forgotten_in_the_end() -> None:
    joined = Joined()
    for number in range(10_000):
        joined.place(number, bytes(24))
        joined.done(-number - 1, spans.SUBMIT, spans.CLIENT, 1, {})
    for halves in (joined._contexts, joined._works):
        assert len(halves) == 4_096


def test_without_a_collector_there_are_no_spans() -> None:
    spans.start(Settings(), "http:0")
    assert spans.here is None
    spans.end(spans.HANDLE, spans.INTERNAL, bytes(24), 1, {})
    spans.stop()


def test_without_a_collector_a_node_imports_nothing_of_opentelemetry() -> None:
    script = """
import sys
from fieldbrook.core.settings import Settings
from fieldbrook.node.main import _preload
from fieldbrook.observability import spans
import fieldbrook.chain.process
settings = Settings()
_preload(settings)
spans.start(settings, "http:0")
print([name for name in sys.modules if name.partition(".")[0] == "opentelemetry"])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("otlp_endpoint", "127.0.0.1:4318", "must be like http://127.0.0.1:4318/v1/traces"),
        ("otlp_headers", "no pair", "must be NAME=VALUE"),
        ("trace_ratio", "2", "must be a number from 0 to 1"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_form_it_has(
    name: str, value: str, reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        load(config=None, **cast(Any, {name: value}))


def test_header_fields_are_read_from_their_list() -> None:
    fields = Settings(otlp_headers="Authorization=Basic YTpi==, x-scope = a b").otlp_header_fields
    assert fields == {"authorization": "Basic YTpi==", "x-scope": "a b"}
    assert Settings().otlp_header_fields == {}
