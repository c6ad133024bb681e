"""Parses the heads of plain event POSTs; Tornado parses every other head.

The parser is strict: it accepts only unambiguous heads in the form that devices send.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from fieldbrook.gateway.events.request import Meta, read_meta
from fieldbrook.observability import spans

HEAD_LIMIT = 16_384
"""The largest request head in bytes, including its empty line."""

_LINE = re.compile(
    rb"POST (?:/srv-applet-mgr/v0|/api/w3bapp)/event/([A-Za-z0-9_]{1,96}+)(?:\?([!\x22$-~]*+))?+"
    rb" HTTP/1\.1"
)
# Every pattern here reads untrusted bytes. Each repeat is possessive, so that a match takes time
# linear in the size of the head. `tests/unit/repository/pattern_table.py` holds the worst inputs.
_FIELDS = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[\t\x20-\x7e\x80-\xff]*+\r\n)++\r\n")
_RELEVANT = re.compile(
    rb"^(host|content-length|transfer-encoding|expect|upgrade|content-encoding|connection|origin"
    rb"|trailer|te|authorization|idempotency-key|traceparent):([^\r\n]*+)\r$",
    re.IGNORECASE | re.MULTILINE,
)
# The form of hosts that devices send. Tornado checks other forms (RFC 3986 allows `a=b`, `%41`).
_HOST = re.compile(rb"[A-Za-z0-9.:_\[\]\-]++")
_LENGTH = re.compile(rb"[0-9]{1,9}+")
_PARAMETERS_LIMIT = 1_000  # Tornado refuses a query with more parameters
_CHANGING = (b"timestamp", b"eventID")  # parameters that differ in every request


def has_bare_line_feed(head: bytes) -> bool:
    """Return whether a line of a request head, complete or not, ends without a carriage return."""
    return head.count(b"\n") != head.count(b"\r\n")


class Fields(NamedTuple):
    """The header fields of a request that matter to the fast path."""

    body_length: int
    authorization: str | None
    idempotency_key: str | None
    traceparent: str = ""


class Head:
    """A parsed request head: the project, the meta data and the length of the body in bytes.

    `meta` comes from the query, `Authorization` and `Idempotency-Key`. `changing` is set if the
    client's next head will differ, so that caching this one is useless.
    """

    __slots__ = ("body_length", "changing", "meta", "project_name")

    def __init__(self, project_name: str, meta: Meta, body_length: int, changing: bool) -> None:
        self.project_name = project_name
        self.meta = meta
        self.body_length = body_length
        self.changing = changing


def read_fields(fields: bytes) -> Fields | None:
    """Parse header fields, including the empty line; None if Tornado must parse them."""
    if _FIELDS.fullmatch(fields) is None:
        return None
    length = hosts = -1
    authorization = idempotency_key = traceparent = None
    for name, padded in _RELEVANT.findall(fields):
        lowered, value = name.lower(), padded.strip(b" \t")
        if lowered == b"host" and hosts < 0 and _HOST.fullmatch(value):
            hosts = 1
        elif lowered == b"content-length" and length < 0 and _LENGTH.fullmatch(value):
            length = int(value)
        elif lowered == b"authorization" and authorization is None:
            authorization = value.decode("latin-1")
        elif lowered == b"idempotency-key" and idempotency_key is None:
            idempotency_key = value.decode("latin-1")
        elif lowered == b"traceparent":
            # A repeated `traceparent` counts as absent; without a collector the field is not
            # needed.
            traceparent = "" if traceparent is not None else value.decode("latin-1")
        elif lowered == b"connection" and value.lower() == b"keep-alive":
            continue
        else:
            return None
    if length < 0 or hosts < 0:
        return None
    if spans.here is None:
        traceparent = None
    return Fields(length, authorization, idempotency_key, traceparent or "")


def read_head(
    head: bytes, fields_reader: Callable[[bytes], Fields | None] = read_fields
) -> Head | None:
    """Parse a request head, including its empty line; None if Tornado must parse it.

    Devices send the same head again and again, so `FastPath` caches the result. If the query
    changes with each request, it caches only the header fields, by `fields_reader`.
    """
    line, _, rest = head.partition(b"\r\n")
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    fields = fields_reader(rest)
    if fields is None:
        return None
    query = match[2] or b""
    if query.count(b"&") >= _PARAMETERS_LIMIT:
        return None
    meta = read_meta(
        query.decode("ascii"), fields.authorization, fields.idempotency_key, fields.traceparent
    )
    changing = (
        meta.key is not None or meta.traceparent != "" or any(name in query for name in _CHANGING)
    )
    return Head(match[1].decode("ascii"), meta, fields.body_length, changing)
