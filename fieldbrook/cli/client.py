"""HTTP client of the command line: calls the management routes of a node.

It uses the standard library only, and imports `http.client` at the first request, so that
commands that contact no server start fast.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR
from threading import Event, Timer
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from fieldbrook.cli.errors import (
    ClientError,
    InvalidAnswerError,
    RefusedError,
    UnreachableError,
    WrongUsageError,
)
from fieldbrook.core.bounded_json import from_json

if TYPE_CHECKING:
    import socket
    from http.client import HTTPConnection, HTTPResponse
    from ssl import SSLContext

DEFAULT_SERVER = "http://127.0.0.1:8888"
PREFIX = "/srv-applet-mgr/v0"
TIMEOUT_S = 30.0
WHOLE_ANSWER_S = 600.0
"""Time limit for a whole answer: ends requests to a server that sends a few bytes at a time."""
ANSWER_LIMIT_BYTES = 64 << 20
DOWNLOAD_LIMIT_BYTES = 2 << 30
_CHUNK_BYTES = 1 << 20
_LINE_LIMIT_BYTES = 1 << 20  # for a stream; a message has at most 40 rows
_JSON = {"Content-Type": "application/json"}


def normal_server(server: str) -> str:
    """Return a server's address as `scheme://host[:port][/prefix]`; the default is `http://`.

    Raises:
        WrongUsageError: the text is not such an address.
    """
    full = server if "://" in server else f"http://{server}"
    try:
        parts = urlsplit(full)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname)
        valid = valid and parts.port != 0 and not parts.username and not parts.query
    except ValueError:
        valid = False
    if not valid:
        raise WrongUsageError(
            f"{server!r} is not the address of a node", f"give one like {DEFAULT_SERVER}"
        )
    return full.rstrip("/")


class Upload(NamedTuple):
    """A file for `Client.upload`."""

    filename: str
    content: bytes


class _Request(NamedTuple):
    method: str
    target: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    limit_bytes: int = ANSWER_LIMIT_BYTES  # size limit of the answer

    @property
    def name(self) -> str:
        return f"{self.method} {self.target.partition('?')[0]}"


class Client:
    """Client of one node; it keeps one HTTP connection open between calls."""

    def __init__(
        self,
        server: str,
        token: str = "",
        timeout_s: float = TIMEOUT_S,
        authorities: str = "",
        whole_answer_s: float = WHOLE_ANSWER_S,
    ) -> None:
        """Store the parameters; the first request opens the connection.

        Args:
            server: the node's address.
            token: sent with every request, "" for none.
            timeout_s: how long the server may be silent.
            authorities: PEM file of trusted certificate authorities, "" for the system's.
            whole_answer_s: how long a whole answer may take.
        """
        self.server = normal_server(server)
        self._authorities = authorities
        self.token = token
        self._timeout_s = timeout_s
        self._whole_answer_s = whole_answer_s
        self.last_answered = ""
        """Method and path of the last request that was answered, "" before the first answer."""
        self._connection: HTTPConnection | None = None

    def call(
        self,
        method: str,
        path: Iterable[str],
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Make one request under the management prefix.

        Args:
            method: the HTTP method.
            path: the route's segments; each is quoted here.
            query: parameters; None values are left out, list values repeat the key.
            body: sent as JSON unless it is None.
            headers: additional headers.

        Returns:
            The decoded JSON; text when the answer is not JSON; None when it has no body.

        Raises:
            RefusedError: the node answered with an error.
            UnreachableError: the server cannot be reached or does not answer.
            InvalidAnswerError: the answer has more than `ANSWER_LIMIT_BYTES`.
        """
        data = None if body is None else json.dumps(body).encode()
        sent = {**({} if data is None else _JSON), **(headers or {})}
        return _decode(*self._send(_Request(method, _route(path), data, sent), query))

    def upload(
        self, method: str, path: Iterable[str], info: object, file: Upload | None = None
    ) -> Any:
        """Do the same as `call`, with a multipart body: the part `info` (JSON) and the part
        `file`."""
        body, content_type = encode_multipart(info, file, secrets.token_hex(16))
        headers = {"Content-Type": content_type}
        return _decode(*self._send(_Request(method, _route(path), body, headers)))

    def download(self, method: str, path: Iterable[str], body: object) -> bytes:
        """Do the same as `call`, but return the answer as bytes, at most `DOWNLOAD_LIMIT_BYTES`."""
        data = json.dumps(body).encode()
        return self._send(_Request(method, _route(path), data, _JSON, DOWNLOAD_LIMIT_BYTES))[1]

    def liveness(self) -> Any:
        """Return the state of each part of the node by name; this needs no login."""
        try:
            return _decode(*self._send(_Request("GET", "/liveness")))
        except RefusedError as error:
            if error.status == 503 and error.body:
                return error.body
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(
        self, request: _Request, query: Mapping[str, object] | None = None
    ) -> tuple[str, bytes]:
        """Make a request and return the type and the content of its answer."""
        request = self._addressed(request, query)
        status, content_type, answer = self._exchange(request)
        self.last_answered = request.name
        if 200 <= status < 300:
            return content_type, answer
        raise _refusal(request, status, content_type, answer)

    def lines(self, path: Iterable[str], query: Mapping[str, object]) -> Iterator[str]:
        """Make a GET request whose answer is a stream of events, and yield its lines.

        The stream has its own connection. It ends with the iterator, or if the node is silent for
        the timeout of this client; the node sends something every 15 s.

        Raises:
            RefusedError, UnreachableError: as for `call`.
            InvalidAnswerError: the answer is not a stream of events.
        """
        from http.client import HTTPException

        accepted = {"Accept": "text/event-stream"}
        request = self._addressed(_Request("GET", _route(path), None, accepted), query)
        connection = self._connect()
        try:
            connection.request(request.method, request.target, None, dict(request.headers))
            answer = connection.getresponse()
            kind = answer.headers.get("Content-Type", "")
            if answer.status != 200:
                raise _refusal(request, answer.status, kind, answer.read(_CHUNK_BYTES))
            self.last_answered = request.name
            if not kind.startswith("text/event-stream"):
                raise InvalidAnswerError(f"{self.server} answered {request.name} with no stream")
            while line := answer.readline(_LINE_LIMIT_BYTES):
                yield line.decode("utf-8", "replace").rstrip("\r\n")
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def _addressed(self, request: _Request, query: Mapping[str, object] | None) -> _Request:
        """Return the request with its whole target and all headers."""
        parameters = {name: value for name, value in (query or {}).items() if value is not None}
        target = urlsplit(self.server).path + request.target
        target += "?" + urlencode(parameters, doseq=True) if parameters else ""
        headers = {"Accept": "application/json", **request.headers}
        if self.token:
            if not (self.token.isascii() and self.token.isprintable()):
                raise WrongUsageError(
                    "the login or access key has characters that no HTTP header can carry"
                )
            headers["Authorization"] = f"Bearer {self.token}"
        return request._replace(target=target, headers=headers)

    def _exchange(self, request: _Request) -> tuple[int, str, bytes]:
        """Send a request. If it is a GET and the server has closed the idle connection, send it
        again."""
        from http.client import HTTPException, RemoteDisconnected

        reused = self._connection is not None
        try:
            return self._exchange_once(request)
        except (RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            self.close()
            if reused and request.method == "GET":
                return self._exchange(request)
            raise self._unreachable(error) from error
        except (OSError, HTTPException) as error:
            self.close()
            raise self._unreachable(error) from error

    def _exchange_once(self, request: _Request) -> tuple[int, str, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        connection.request(request.method, request.target, request.body, dict(request.headers))
        with self._time_limit(connection):
            answer = connection.getresponse()
            chunks = list(_chunks(answer, request.limit_bytes))
        if sum(map(len, chunks)) > request.limit_bytes:
            self.close()
            raise InvalidAnswerError(
                f"{self.server} answered {request.name} with more than "
                f"{request.limit_bytes >> 20} MiB"
            )
        return answer.status, answer.headers.get("Content-Type", ""), b"".join(chunks)

    @contextmanager
    def _time_limit(self, connection: HTTPConnection) -> Iterator[None]:
        """Shut the connection down when the block takes longer than `whole_answer_s`.

        The timeout of the socket does not do this, because it restarts with each byte.
        """
        late = Event()
        timer = Timer(self._whole_answer_s, _shut_down, [connection.sock, late])
        timer.daemon = True
        timer.start()
        text = f"no whole answer within {self._whole_answer_s:g} s"
        try:
            yield
        except Exception as error:
            if late.is_set():
                raise OSError(text) from error
            raise
        finally:
            timer.cancel()
        if late.is_set():  # without a length, the shutdown looks like the end of the answer
            raise OSError(text)

    def _connect(self) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        parts = urlsplit(self.server)
        host = str(parts.hostname)
        if parts.scheme == "http":
            return HTTPConnection(host, parts.port, timeout=self._timeout_s)
        context = _ssl_context(self._authorities)
        return HTTPSConnection(host, parts.port, timeout=self._timeout_s, context=context)

    def _unreachable(self, error: Exception) -> UnreachableError:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            reason = f"no answer within {self._timeout_s:.0f} s"
        hint = (
            "is the node running there? Start one with `fieldbrook up`, or name another "
            "server with --server or FIELDBROOK_SERVER"
        )
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            reason = f"its certificate is not trusted: {getattr(error, 'verify_message', '')}"
            hint = "name its certificate authority with --ca FILE or FIELDBROOK_CA"
        elif "WRONG_VERSION_NUMBER" in str(error):
            reason = "the port speaks http, and not https"
            hint = f"use --server {self.server.replace('https', 'http', 1)}"
        return UnreachableError(f"cannot reach {self.server}: {reason}", hint)


def _refusal(request: _Request, status: int, content_type: str, answer: bytes) -> RefusedError:
    value = _decode(content_type, answer)
    if not isinstance(value, dict):
        text = str(value or "").strip()[:200] or "an empty answer"
        value = {"desc": f"{request.name}: {text}"}
    return RefusedError(status, value)


def _shut_down(connected: socket.socket, late: Event) -> None:
    late.set()
    with suppress(OSError):
        connected.shutdown(SHUT_RDWR)


def _chunks(answer: HTTPResponse, limit_bytes: int) -> Iterator[bytes]:
    """Yield the body of an answer in chunks; stop once it exceeds the limit."""
    from http.client import IncompleteRead

    size = 0
    while size <= limit_bytes:
        chunk = answer.read(_CHUNK_BYTES)
        if not chunk:
            if answer.length:
                raise IncompleteRead(b"", answer.length)
            return
        size += len(chunk)
        yield chunk


def _route(path: Iterable[str]) -> str:
    return PREFIX + "".join("/" + quote(part, safe="") for part in path)


def _ssl_context(authorities: str) -> SSLContext:
    from ssl import SSLError, create_default_context

    try:
        return create_default_context(cafile=authorities or None)
    except (OSError, SSLError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        hint = "name a PEM file of certificates with --ca FILE or FIELDBROOK_CA"
        raise ClientError(
            f"cannot use {authorities} as certificate authorities: {reason}", hint
        ) from None


def encode_multipart(info: object, file: Upload | None, boundary: str) -> tuple[bytes, str]:
    """Return a `multipart/form-data` body with the parts `info` and `file`, and its type."""
    parts = [b'name="info"\r\n\r\n' + json.dumps(info).encode()]
    if file is not None:
        # Like browsers, percent-encode characters that could end the quoted string or the line.
        name = "".join(
            c if c.isprintable() and c not in '"\\' else quote(c, errors="replace")
            for c in file.filename
        )
        head = f'name="file"; filename="{name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
        parts.append(head.encode("utf-8", "replace") + file.content)
    mark = boundary.encode()
    body = b"".join(
        b"--" + mark + b"\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts
    )
    return body + b"--" + mark + b"--\r\n", f"multipart/form-data; boundary={boundary}"


def _decode(content_type: str, answer: bytes) -> Any:
    if not answer:
        return None
    text = answer.decode("utf-8", "replace")
    if content_type.partition(";")[0].strip().endswith("json"):
        with suppress(ValueError):
            return from_json(text)
    return text


def items(answer: Any) -> list[dict[str, Any]]:
    """Return the rows of a list route's answer: a bare array, or the array under `data`.

    A `data` of null means that there are no rows.
    """
    rows = answer.get("data") if isinstance(answer, dict) else answer
    return list(rows or [])
