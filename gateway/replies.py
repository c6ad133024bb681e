"""The wire format of answers: JSON bodies, errors, security and CORS headers.

Source: interface document, 1.2, 1.3 and 1.5.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from fieldbrook import __version__
from fieldbrook.core.errors import SOURCE, NodeError

JSON_TYPE = "application/json; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"
EVENT_META = f"{SOURCE}@{__version__}/HandleEvent"
"""The value of the header `X-Meta` in answers to events."""

_CORS_METHODS = "GET, HEAD, POST, CONNECT, PUT, PATCH, DELETE, OPTIONS"
_CORS_HEADERS = (
    "Accept, Accept-Language, Content-Language, Origin, Access-Control-Request-Method, "
    "Access-Control-Request-Headers, Content-Type, Authorization, X-Request-Id, User-Agent, "
    "Idempotency-Key, traceparent"
)
_CORS_EXPOSED = (
    "X-Meta, X-Event-Id, Idempotency-Replayed, Warning, X-RateLimit-Limit, "
    "X-RateLimit-Remaining, X-RateLimit-Reset"
)
REPLAYED_HEADER = "Idempotency-Replayed"
"""The header that is `true` on an answer to a duplicate: all results are stored ones."""


class EventReply:
    """The answer to an event request, ready for the wire.

    `error` is set when the answer reports an error instead of results. `repeats` is set if other
    events may get the identical body. `publisher_key` is the key of the publisher whose
    acknowledgement topic gets the answer, "" for none; `publisher_id` and `project_id` are the ids
    of this publisher and its project. `replayed` is set if all results are stored ones and no
    handler ran.
    """

    __slots__ = (
        "body",
        "error",
        "event_id",
        "project_id",
        "publisher_id",
        "publisher_key",
        "repeats",
        "replayed",
        "status",
    )

    def __init__(
        self,
        status: int,
        body: bytes,
        event_id: str,
        error: NodeError | None = None,
        repeats: bool = False,
        publisher_key: str = "",
        replayed: bool = False,
        publisher_id: int = 0,
        project_id: int = 0,
    ) -> None:
        self.status = status
        self.body = body
        self.event_id = event_id
        self.error = error
        self.repeats = repeats
        self.publisher_key = publisher_key
        self.publisher_id = publisher_id
        self.project_id = project_id
        self.replayed = replayed


Answer = Callable[[EventReply], None]

_encode = msgspec.json.Encoder().encode

# Go's encoder escapes the characters that could end a script or a line of JavaScript. JSON has
# none of them outside strings, so replacing them in the encoded bytes is safe.
_ESCAPES = (
    (b"<", rb"\u003c"),
    (b">", rb"\u003e"),
    (b"&", rb"\u0026"),
    ("\u2028".encode(), rb"\u2028"),
    ("\u2029".encode(), rb"\u2029"),
)


_PIECE_BYTES = 256 << 10  # escaping this many bytes takes some milliseconds


def to_json(value: Any) -> bytes:
    """Encode a body as Go does: JSON with `<`, `>`, `&` and U+2028/2029 escaped, and a newline."""
    return _escaped(_encode(value)) + b"\n"


async def to_long_json(value: Any, run: Callable[[Callable[[], bytes]], Awaitable[bytes]]) -> bytes:
    """Encode as `to_json` does; `run` escapes a long body in a thread, piece by piece.

    Escaping 4 MiB of `<` takes half a second and makes 24 MiB, and events use the same loop.
    """
    body = _encode(value)
    del value
    if len(body) <= _PIECE_BYTES:
        return _escaped(body) + b"\n"
    return await run(lambda: b"".join((*map(_escaped, _pieces(body)), b"\n")))


def _escaped(body: bytes) -> bytes:
    for plain, escaped in _ESCAPES:
        if plain in body:
            body = body.replace(plain, escaped)
    return body


def _pieces(body: bytes) -> Iterator[bytes]:
    """Divide a body into pieces, never within a character."""
    begin = 0
    while begin < len(body):
        end = begin + _PIECE_BYTES
        while end < len(body) and body[end] & 0xC0 == 0x80:
            end += 1
        yield body[begin:end]
        begin = end


def error_json(error: NodeError, version: str) -> bytes:
    """Encode the 8-key body of a known error."""
    return to_json(error.body(version))


def unknown_error_json(version: str) -> bytes:
    """Encode the body of an unexpected error; its details go to the log, not into the answer."""
    return to_json(
        {
            "key": "UnknownError",
            "code": 500_000_000,
            "msg": "unknown error",
            "desc": "",
            "canBeTalk": False,
            "id": "",
            "sources": [f"{SOURCE}@{version}"],
            "fields": None,
        }
    )


POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    # Answers contain tokens and private data of the caller.
    "Cache-Control": "no-store",
}
_SECURITY_HEADERS_OVER_TLS = {**_SECURITY_HEADERS, "Strict-Transport-Security": "max-age=31536000"}


# Top-level names outside the public DNS: in another network they mean another machine, or none
# (RFC 6761, 6762, 8375, 9476 and ICANN's reservation of `internal`).
_LOCAL_NAMES = frozenset(
    {"alt", "arpa", "example", "internal", "invalid", "local", "localhost", "onion", "test"}
)


def security_headers(*, tls: bool, host: str) -> dict[str, str]:
    """Return the security headers of all answers except those to events.

    They forbid browsers to run scripts, to embed the page, to guess types and to cache.

    Args:
        tls: whether the request came over TLS.
        host: the host in the request, without a port.

    Source: OWASP's HTTP headers and REST security pages; RFC 6797 for HSTS.
    """
    return _SECURITY_HEADERS_OVER_TLS if tls and is_public_name(host) else _SECURITY_HEADERS


def is_public_name(host: str) -> bool:
    """Return whether a host is a name of the public DNS; only such names get HSTS.

    A browser applies HSTS to every port of a host. For an IP address, `localhost` or a local
    name, that would affect unrelated services.
    """
    labels = host.lower().removesuffix(".").split(".")
    return (
        len(labels) > 1
        and labels[-1] not in _LOCAL_NAMES
        and not labels[-1].isdecimal()
        and all(label.replace("-", "a").isalnum() and label.isascii() for label in labels)
    )


def cors_headers(*, preflight: bool) -> dict[str, str]:
    """Return the CORS headers for a request with `Origin`.

    Any origin is allowed, because callers authenticate with a token, never with a cookie.
    """
    headers = {
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Expose-Headers": _CORS_EXPOSED,
    }
    if preflight:
        headers["Access-Control-Allow-Methods"] = _CORS_METHODS
        headers["Access-Control-Allow-Headers"] = _CORS_HEADERS
    return headers
