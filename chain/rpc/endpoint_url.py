"""Addresses of endpoints: separates the public part of a URL from the parts that may be keys."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit


def public_part(url: str) -> str:
    """Return the part of an endpoint's address that may be shown: its scheme, host and port."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.scheme}://{host}{port}"


def secret_parts(url: str) -> Iterator[str]:
    """Yield the parts of an endpoint's address that must not be shown."""
    parts = urlsplit(url)
    yield url
    if parts.query:
        yield parts.query
    if parts.password:
        yield parts.password
    yield from (part for part in parts.path.split("/") if len(part) >= 8)
    yield from (
        value for pair in parts.query.split("&") if len(value := pair.partition("=")[2]) >= 8
    )
