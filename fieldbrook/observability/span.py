"""A span that has ended, as a value. `spans.py` has its queue, `span_export.py` its encoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Context = bytes
"""The id of a trace and the id of a span in it, which is the parent of the next spans."""

TRACE_BYTES, SPAN_BYTES = 16, 8


class Span(NamedTuple):
    """A span that has ended.

    `context` has its own ids; `parent` is the id of its parent span, b"" without one. Times are
    Unix nanoseconds. `error` is "" unless it failed.
    """

    name: str
    kind: str
    context: Context
    parent: bytes
    began_ns: int
    ended_ns: int
    attributes: Mapping[str, str | int | bool]
    error: str = ""
