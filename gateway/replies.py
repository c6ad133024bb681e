"""What answers look like on the wire: JSON as clients know it, errors, CORS.

Source: interface document, 1.2, 1.3 and 1.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fieldbrook import __version__
from fieldbrook.core.errors import SOURCE, NodeError

JSON_TYPE = "application/json; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"
EVENT_META = f"{SOURCE}@{__version__}/HandleEvent"
"""What `X-Meta` says of an event's answer."""

_CORS_METHODS = "GET, HEAD, POST, CONNECT, PUT, PATCH, DELETE, OPTIONS"
_CORS_HEADERS = (
    "Accept, Accept-Language, Content-Language, Origin, Access-Control-Request-Method, "
    "Access-Control-Request-Headers, Content-Type, Authorization, X-Request-Id, User-Agent, "
    "Idempotency-Key"
)
_CORS_EXPOSED = (
    "X-Meta, X-Event-Id, Idempotency-Replayed, Warning, X-RateLimit-Limit, "
    "X-RateLimit-Remaining, X-RateLimit-Reset"
)
REPLAYED_HEADER = "Idempotency-Replayed"
"""`true` on an answer whose results are stored ones."""


class EventReply:
    """The answer to what a client sent as an event, ready for the wire.

    `error` is set when no handler was asked. `repeats`: other events get the very same
    body. `publisher_key` names whose acknowledgement topic is told, if any is. `replayed`: the
    results are stored ones, all of them; nothing ran.
    """

    __slots__ = ("body", "error", "event_id", "publisher_key", "repeats", "replayed", "status")

    def __init__(
        self,
        status: int,
        body: bytes,
        event_id: str,
        error: NodeError | None = None,
        repeats: bool = False,
        publisher_key: str = "",
        replayed: bool = False,
    ) -> None:
        self.status = status
        self.body = body
        self.event_id = event_id
        self.error = error
        self.repeats = repeats
        self.publisher_key = publisher_key
        self.replayed = replayed


Answer = Callable[[EventReply], None]

_encode = msgspec.json.Encoder().encode

# Go's encoder escapes what could end a script or a line of JavaScript. Outside strings
# none of these occur in JSON, so replacing them in the encoded bytes is safe.
_ESCAPES = (
    (b"<", rb"\u003c"),
    (b">", rb"\u003e"),
    (b"&", rb"\u0026"),
    ("\u2028".encode(), rb"\u2028"),
    ("\u2029".encode(), rb"\u2029"),
)


def to_json(value: Any) -> bytes:
    """`value` as the body of an answer: JSON with `<`, `>`, `&` escaped, and a newline."""
    body = _encode(value)
    for plain, escaped in _ESCAPES:
        if plain in body:
            body = body.replace(plain, escaped)
    return body + b"\n"


def error_json(error: NodeError, version: str) -> bytes:
    """The 8-key body of a failure we foresaw."""
    return to_json(error.body(version))


def unknown_error_json(version: str) -> bytes:
    """The body of a failure nobody foresaw; what it was is in the log, not in the answer."""
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
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    # Answers hold tokens and data of those who asked.
    "Cache-Control": "no-store",
}
_SAFE_OVER_TLS = {**_SAFE, "Strict-Transport-Security": "max-age=31536000"}


# Names that mean another machine, or none, elsewhere (RFC 6761, 6762, 8375, 9476 and ICANN's
# reservation of `internal`).
_LOCAL_NAMES = frozenset(
    {"alt", "arpa", "example", "internal", "invalid", "local", "localhost", "onion", "test"}
)


def safe_headers(*, tls: bool, host: str) -> dict[str, str]:
    """What browsers are told with every answer but an event's: run, embed, guess and keep
    nothing.

    Args:
        tls: whether the request came over TLS.
        host: the host that the client asked, without a port.

    Source: OWASP's HTTP headers and REST security pages; RFC 6797 for HSTS.
    """
    return _SAFE_OVER_TLS if tls and is_real_name(host) else _SAFE


def is_real_name(host: str) -> bool:
    """Whether a host is a name of the public DNS. A browser keeps HSTS for every port of a host:
    for an address, `localhost` or a name of one network that would be many a stranger's."""
    labels = host.lower().removesuffix(".").split(".")
    return (
        len(labels) > 1
        and labels[-1] not in _LOCAL_NAMES
        and not labels[-1].isdecimal()
        and all(label.replace("-", "a").isalnum() and label.isascii() for label in labels)
    )


def cors_headers(*, preflight: bool) -> dict[str, str]:
    """Headers for a request that carries `Origin`.

    Any origin may ask: a caller shows who it is by a token it must hold, never by a cookie.
    """
    headers = {
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Credentials": "true",
        "Access-Control-Expose-Headers": _CORS_EXPOSED,
    }
    if preflight:
        headers["Access-Control-Allow-Methods"] = _CORS_METHODS
        headers["Access-Control-Allow-Headers"] = _CORS_HEADERS
    return headers
