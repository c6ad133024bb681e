"""Request targets: the four forms of a request line's target, normalised paths, and origins.

Source: RFC 9112, 3.2.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Any
from urllib.parse import urlsplit

from tornado import httputil, web

from fieldbrook.gateway.listening.proxies import Proxies

# A name or an address, with or without a port. User names (`a@b`) are not allowed in requests.
_AUTHORITY = re.compile(r"[A-Za-z0-9._~!$&'()*+;=%:\[\]\-]++")
_SLASHES = re.compile(r"//++")


def split_absolute(target: str) -> tuple[str, str] | None:
    """Split an absolute-form target into its authority and its path with the query.

    For example, `http://x:8888/a?b` gives `x:8888` and `/a?b`. The result is None if the target has
    another form or names no host.
    """
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        return None
    ends = [at for at in (rest.find("/"), rest.find("?")) if at >= 0]
    end = min(ends, default=len(rest))
    authority, path = rest[:end], rest[end:]
    if not _AUTHORITY.fullmatch(authority):
        return None
    return authority, path if path.startswith("/") else f"/{path}"


def is_origin(text: str) -> bool:
    """Return whether an `Origin` header can be parsed; Tornado raises an error for others
    (`http://[`)."""
    try:
        urlsplit(text)
    except ValueError:
        return False
    return True


def clean_path(path: str) -> str:
    """Replace each run of slashes in a path with one slash."""
    return _SLASHES.sub("/", path)


class TargetApplication(web.Application):
    """An application that accepts absolute-form targets, as every origin server must. If a request
    comes through a trusted proxy, its address is that of the client."""

    proxies = Proxies()

    def find_handler(
        self, request: httputil.HTTPServerRequest, **kwargs: Any
    ) -> web._HandlerDelegate:
        """Called by Tornado for each request."""
        forwarded = request.headers.get_list("X-Forwarded-For")
        request.remote_ip = self.proxies.client(request.remote_ip or "", forwarded)
        return super().find_handler(request, **kwargs)

    def start_request(
        self, server_conn: object, request_conn: httputil.HTTPConnection
    ) -> httputil.HTTPMessageDelegate:
        """Called by Tornado before each request."""
        return _TargetReader(super().start_request(server_conn, request_conn))


class _TargetReader(httputil.HTTPMessageDelegate):
    """Rewrites a request's target to origin form before the route is chosen."""

    def __init__(self, inner: httputil.HTTPMessageDelegate) -> None:
        self._inner = inner

    def headers_received(
        self,
        start_line: httputil.RequestStartLine | httputil.ResponseStartLine,
        headers: httputil.HTTPHeaders,
    ) -> Awaitable[None] | None:
        """Rewrite the target of a request whose head has been read.

        Raises:
            HTTPInputError: the target has none of the four forms, or the `Host` header is
                invalid; answered 400.
        """
        assert isinstance(start_line, httputil.RequestStartLine)
        return self._inner.headers_received(_in_origin_form(start_line, headers), headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Forward a part of the request's body."""
        return self._inner.data_received(chunk)

    def finish(self) -> None:
        """Forward the end of the request."""
        self._inner.finish()

    def on_connection_close(self) -> None:
        """Forward the notice that the client closed the connection."""
        self._inner.on_connection_close()


def _in_origin_form(
    start_line: httputil.RequestStartLine, headers: httputil.HTTPHeaders
) -> httputil.RequestStartLine:
    target = start_line.path
    if target.startswith("/") or target == "*" or start_line.method == "CONNECT":
        return start_line
    found = split_absolute(target)
    if found is None:
        raise httputil.HTTPInputError(f"Invalid request target: {target[:100]!r}")
    authority, path = found
    # The target's authority overrides `Host`. `Host` must occur once; HTTP/1.0 may omit it.
    hosts = headers.get_list("Host")
    if len(hosts) > 1 or (hosts and not _AUTHORITY.fullmatch(hosts[0])):
        raise httputil.HTTPInputError("Invalid Host header")
    if hosts or start_line.version == "HTTP/1.0":
        headers["Host"] = authority
    return start_line._replace(path=path)
