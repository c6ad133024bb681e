"""HTTP client of the command line: calls a node's management routes, stores the login.

It uses the standard library only, and imports `http.client` at the first request, so that
commands that contact no server start fast.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import SHUT_RDWR
from threading import Event, Timer
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

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

EXIT_REFUSED, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_NOT_ALLOWED = 1, 2, 3, 4
_ALLOWANCE_KEYS = frozenset(
    {
        "AccessKeyExpired",
        "AccessKeyPermissionDenied",
        "DisabledAccount",
        "Forbidden",
        "WhiteListForbidden",
    }
)


class ClientError(Exception):
    """A command cannot do its work. `hint` says what to do about it."""

    exit_code = EXIT_REFUSED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class WrongUsageError(ClientError):
    """An argument, an option or an input of the command is invalid."""

    exit_code = EXIT_USAGE


class UnreachableError(ClientError):
    """The server gave no answer; it is unknown whether it handled the request."""

    exit_code = EXIT_UNREACHABLE


class NotLoggedInError(ClientError):
    """The command needs a login and there is none for this server."""

    exit_code = EXIT_NOT_ALLOWED


class RefusedError(ClientError):
    """The node answered with an error.

    `body` is the error object with 8 keys of the interface document, section 1.3.
    """

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status = status
        self.body = body
        self.key = str(body.get("key") or "")
        said = [str(body.get(name) or "") for name in ("msg", "desc")]
        self.reason = ": ".join(text for text in said if text) or "no reason given"
        fields = body.get("fields")
        self.fields: list[Mapping[str, Any]] = [
            item for item in (fields if isinstance(fields, list) else []) if isinstance(item, dict)
        ]
        super().__init__(self._describe())
        if status == 401 or (status == 403 and self.key in _ALLOWANCE_KEYS):
            self.exit_code = EXIT_NOT_ALLOWED

    def _describe(self) -> str:
        head = f"the node refused: {self.reason}"
        head += f" ({self.status} {self.key})" if self.key else f" ({self.status})"
        lines = [f"  {item.get('field')}: {item.get('msg')}" for item in self.fields]
        return "\n".join([head, *lines])


class StrangeAnswerError(ClientError):
    """The server's answer is not one that a node of this version gives, e.g. it is too large."""


class Session(NamedTuple):
    """A login to a server.

    `expires_at` is the RFC 3339 time that the node reported, "" when it is unknown.
    `authorities` is the PEM file of the certificate authorities that are trusted for this
    server, "" for those of the system.
    """

    server: str
    token: str
    username: str = ""
    role: str = ""
    expires_at: str = ""
    authorities: str = ""


def session_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The path of the saved login: `$XDG_CONFIG_HOME/fieldbrook/session.json`."""
    base = environment.get("XDG_CONFIG_HOME") or ""
    folder = Path(base) if Path(base).is_absolute() else Path.home() / ".config"
    return folder / "fieldbrook" / "session.json"


def load_session(path: Path) -> Session | None:
    """The saved login; None when there is none.

    Raises:
        ClientError: the file cannot be read, or `save_session` did not write it.
    """
    try:
        values = json.loads(path.read_bytes())
        return Session(**{name: str(value) for name, value in values.items()})
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError, RecursionError):
        hint = "remove it with `fieldbrook logout` and log in again"
        raise ClientError(f"{path} is not a saved login", hint) from None


def save_session(path: Path, session: Session) -> None:
    """Save a login in a file that only its user can read.

    Raises:
        ClientError: the file cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(session._asdict(), file, indent=2)
            file.write("\n")
        draft.replace(path)
    except OSError as error:
        raise ClientError(f"the login cannot be saved in {path}: {error.strerror}") from None


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
        self.answered = ""
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
            StrangeAnswerError: the answer has more than `ANSWER_LIMIT_BYTES`.
        """
        data = None if body is None else json.dumps(body).encode()
        extra = {} if data is None else {"Content-Type": "application/json"}
        route = PREFIX + "".join("/" + quote(part, safe="") for part in path)
        return self._request(method, route, query, data, {**extra, **(headers or {})})

    def upload(
        self, method: str, path: Iterable[str], info: object, file: Upload | None = None
    ) -> Any:
        """Like `call`, but with a multipart body: the part `info` (JSON) and the part `file`."""
        body, content_type = encode_multipart(info, file, secrets.token_hex(16))
        route = PREFIX + "".join("/" + quote(part, safe="") for part in path)
        return self._request(method, route, None, body, {"Content-Type": content_type})

    def download(self, method: str, path: Iterable[str], body: object) -> bytes:
        """Like `call`, but return the answer as bytes, at most `DOWNLOAD_LIMIT_BYTES`."""
        route = PREFIX + "".join("/" + quote(part, safe="") for part in path)
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        return self._answered(method, route, None, data, headers, DOWNLOAD_LIMIT_BYTES)[1]

    def liveness(self) -> Any:
        """Return the state of each part of the node by name; this needs no login."""
        try:
            return self._request("GET", "/liveness", None, None, {})
        except RefusedError as error:
            if error.status == 503 and error.body:
                return error.body
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(
        self,
        method: str,
        route: str,
        query: Mapping[str, object] | None,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> Any:
        return _decode(*self._answered(method, route, query, body, headers))

    def _answered(
        self,
        method: str,
        route: str,
        query: Mapping[str, object] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        limit_bytes: int = ANSWER_LIMIT_BYTES,
    ) -> tuple[str, bytes]:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = urlsplit(self.server).path + route
        target += "?" + urlencode(given, doseq=True) if given else ""
        sent = {"Accept": "application/json", **headers}
        if self.token:
            if not (self.token.isascii() and self.token.isprintable()):
                raise WrongUsageError("the login or access key has characters that none has")
            sent["Authorization"] = f"Bearer {self.token}"
        status, content_type, answer = self._exchange(method, target, body, sent, limit_bytes)
        self.answered = f"{method} {target.partition('?')[0]}"
        if 200 <= status < 300:
            return content_type, answer
        value = _decode(content_type, answer)
        if not isinstance(value, dict):
            what = str(value or "").strip()[:200] or "an empty answer"
            value = {"desc": f"{self.answered}: {what}"}
        raise RefusedError(status, value)

    def _exchange(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        limit_bytes: int,
    ) -> tuple[int, str, bytes]:
        from http.client import HTTPException, RemoteDisconnected

        kept = self._connection is not None
        try:
            return self._once(method, target, body, headers, limit_bytes)
        except (RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            self.close()
            # The server may have closed the idle connection. A GET is safe to send again.
            if kept and method == "GET":
                return self._exchange(method, target, body, headers, limit_bytes)
            raise self._unreachable(error) from error
        except (OSError, HTTPException) as error:
            self.close()
            raise self._unreachable(error) from error

    def _once(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        limit_bytes: int,
    ) -> tuple[int, str, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        connection.request(method, target, body, dict(headers))
        with self._ended_in_time(connection):
            answer = connection.getresponse()
            chunks = list(_chunks(answer, limit_bytes))
        if sum(map(len, chunks)) > limit_bytes:
            self.close()
            raise StrangeAnswerError(
                f"{self.server} answered {method} {target.partition('?')[0]} with more than "
                f"{limit_bytes >> 20} MiB"
            )
        return answer.status, answer.headers.get("Content-Type", ""), b"".join(chunks)

    @contextmanager
    def _ended_in_time(self, connection: HTTPConnection) -> Iterator[None]:
        """Shut the connection down when the block takes longer than `whole_answer_s`.

        The timeout of the socket does not do this, because it restarts with each byte.
        """
        late = Event()
        watch = Timer(self._whole_answer_s, _end, [connection.sock, late])
        watch.daemon = True
        watch.start()
        text = f"no whole answer within {self._whole_answer_s:g} s"
        try:
            yield
        except Exception as error:
            if late.is_set():
                raise OSError(text) from error
            raise
        finally:
            watch.cancel()
        if late.is_set():  # without a length, the shutdown looks like the end of the answer
            raise OSError(text)

    def _connect(self) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        parts = urlsplit(self.server)
        host = str(parts.hostname)
        if parts.scheme == "http":
            return HTTPConnection(host, parts.port, timeout=self._timeout_s)
        context = _trusting(self._authorities)
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
            reason = f"its certificate is not to be trusted: {getattr(error, 'verify_message', '')}"
            hint = "name who vouches for it with --ca FILE or FIELDBROOK_CA"
        return UnreachableError(f"cannot reach {self.server}: {reason}", hint)


def _end(connected: socket.socket, late: Event) -> None:
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


def _trusting(authorities: str) -> SSLContext:
    from ssl import SSLError, create_default_context

    try:
        return create_default_context(cafile=authorities or None)
    except (OSError, SSLError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        hint = "name a PEM file of certificates with --ca or FIELDBROOK_CA"
        raise ClientError(f"authorities {authorities}: {reason}", hint) from None


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
