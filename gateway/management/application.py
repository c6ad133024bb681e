"""The HTTP application of the management interface: one Tornado handler serves every route.

The handler checks the token before it reads the body, and collects at most as many bytes of the
body as the route allows.

Source: interface document, section 1.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import os
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from functools import partial
from typing import Any

from tornado import httputil, iostream, web
from tornado.routing import PathMatches

from fieldbrook.core.clock import now_ms
from fieldbrook.core.errors import (
    SOURCE,
    BadRequestError,
    FieldError,
    ModuleRefusedError,
    NodeError,
    NotFoundError,
    PayloadTooLargeError,
    ResourceNotFoundError,
    UploadFileSizeLimitError,
)
from fieldbrook.gateway import replies
from fieldbrook.gateway.auth import (
    Caller,
    account_of,
    account_of_key,
    key_of,
    require_admin,
    require_setup_code,
    token_of,
)
from fieldbrook.gateway.events.access_key_usage import KeyUse
from fieldbrook.gateway.events.request import stated_length
from fieldbrook.gateway.management.framework import warnings
from fieldbrook.gateway.management.framework.audit_trail import AuditedRegistry, AuditNotes, Trail
from fieldbrook.gateway.management.framework.binding import MISSING, bind_body, bind_query
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.framework.route import (
    GROUPS,
    Auth,
    Call,
    Done,
    Download,
    Form,
    Match,
    PlainText,
    Route,
    Stream,
    WrongMethod,
    find_route,
    fixed_path,
)
from fieldbrook.gateway.management.framework.workers import Workers
from fieldbrook.gateway.management.openapi import document as openapi
from fieldbrook.gateway.management.openapi import page as openapi_page
from fieldbrook.gateway.management.routes.accounts import (
    access_keys,
    accounts,
    administration,
    audit,
    operators,
    quotas,
    wallets,
)
from fieldbrook.gateway.management.routes.chain import contract_abis, monitors, transactions
from fieldbrook.gateway.management.routes.events import (
    cron_jobs,
    event_history,
    inspection,
    traffic_limits,
)
from fieldbrook.gateway.management.routes.node import broker, chains, configuration
from fieldbrook.gateway.management.routes.node import health as health_routes
from fieldbrook.gateway.management.routes.projects import (
    applets,
    configurations,
    instances,
    projects,
    publishers,
    resources,
    strategies,
    transfer,
)
from fieldbrook.gateway.management.sign_in.throttle import SignInThrottle
from fieldbrook.gateway.memory_budget import NO_ROOM
from fieldbrook.gateway.metrics import prometheus
from fieldbrook.gateway.request_target import clean_path
from fieldbrook.observability import health, metrics
from fieldbrook.security.access_keys import Permission, is_access_key

__all__ = ["PREFIXES", "ROUTES", "ManagementContext", "log_request", "make_application_routes"]

log = logging.getLogger(__name__)

PREFIXES = ("/srv-applet-mgr/v0", "/api/w3bapp")
JSON_LIMIT_BYTES = 1 << 20
_MULTIPART_SLACK = 64 << 10  # boundaries, part headers and `info` around an upload
_DOWNLOAD_PIECE = 1 << 20
_DRAIN_FACTOR = 4  # a refused body up to this many limits is read, so the refusal arrives

ROUTES: tuple[Route, ...] = (
    *accounts.ROUTES,
    *administration.ROUTES,
    *quotas.ROUTES,
    *audit.ROUTES,
    *wallets.ROUTES,
    *operators.ROUTES,
    *access_keys.ROUTES,
    *projects.ROUTES,
    *transfer.ROUTES,
    *configurations.ROUTES,
    *applets.ROUTES,
    *instances.ROUTES,
    *publishers.ROUTES,
    *strategies.ROUTES,
    *cron_jobs.ROUTES,
    *monitors.ROUTES,
    *contract_abis.ROUTES,
    *chains.ROUTES,
    *configuration.ROUTES,
    *transactions.ROUTES,
    *traffic_limits.ROUTES,
    *resources.ROUTES,
    *inspection.ROUTES,
    *health_routes.ROUTES,
    *broker.ROUTES,
    *event_history.ROUTES,
)

_EVENT_PATTERNS = {"POST": (("event", "{channel}"),)}  # served by the event handlers
_NO_FORM = Form(None, "", None)
# A boundary has at most 70 characters. The time that Python's parser of header parameters takes
# grows with the square of their number.
_CONTENT_TYPE_LIMIT = 512
_UNSAFE_IN_FILENAMES = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class _Services:
    context: ManagementContext
    workers: Workers
    key_use: KeyUse
    throttle: SignInThrottle
    notes: AuditNotes


def make_application_routes(context: ManagementContext, *, management: bool = True) -> list[Any]:
    """Build the rules for `tornado.web.Application`. Mount them last: they match every path.

    The rules cover the management routes under both prefixes (if `management` is set), the node's
    own pages, and an answer for every unknown path.
    """
    registry = context.registry
    services = {
        "services": _Services(
            context, Workers(), KeyUse(registry), SignInThrottle(), AuditNotes(registry)
        )
    }
    prefix = "|".join(re.escape(prefix) for prefix in PREFIXES)
    misspelt_events = [(rf"(?:{prefix})(/event/.*)", ManagementHandler, services)]
    managing = [
        (rf"(?:{prefix})(/.*)", ManagementHandler, services),
        (r"/srv-applet-mgr", DescriptionHandler, services),
        (r"/srv-applet-mgr/docs", DescriptionPageHandler, services),
    ]
    served = [
        *(managing if management else misspelt_events),
        (r"/", RootHandler, services),
        (r"/liveness", LivenessHandler, services),
        (r"/readiness", ReadinessHandler, services),
        (r"/version", VersionHandler, services),
        *([(r"/metrics", MetricsHandler, services)] if management else ()),
    ]
    paths = tuple(PathMatches(pattern).regex for pattern, *_ in served)
    return [*served, (r".*", UnknownPathHandler, {**services, "paths": paths})]


def log_request(handler: web.RequestHandler) -> None:
    """Log and count one answer, for Tornado's setting `log_function`.

    Every status is logged at INFO: an answer of 4xx is the client's error, not a warning.
    """
    request = handler.request
    metrics.add(metrics.HTTP_ANSWERS[f"{handler.get_status() // 100}xx"])
    log.info(
        "%s %s %s %.1f ms",
        request.method,
        request.path,
        handler.get_status(),
        1_000 * request.request_time(),
    )


class BaseHandler(web.RequestHandler):
    """Base class of all handlers: security and CORS headers, errors in the interface's form."""

    def initialize(self, services: _Services) -> None:
        """Tornado's constructor hook."""
        self._services = services
        self.context = services.context

    def set_default_headers(self) -> None:
        """Called by Tornado for every answer, errors included."""
        self.clear_header("Server")
        self.clear_header("Content-Type")
        tls, host = self.request.protocol == "https", self.request.host_name
        for name, value in replies.safe_headers(tls=tls, host=host).items():
            self.set_header(name, value)
        if "Origin" in self.request.headers:
            for name, value in replies.cors_headers(preflight=False).items():
                self.set_header(name, value)

    def options(self, *_: str) -> None:
        """Answer a CORS preflight; a request without `Origin` gets an empty 200."""
        if "Origin" not in self.request.headers:
            self.set_status(200)
            return
        for name, value in replies.cors_headers(preflight=True).items():
            self.set_header(name, value)
        self.set_status(204)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with the exception that was raised."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, NodeError):
            self.refuse(error)
        elif status_code == 405:
            self.wrong_method([])
        elif isinstance(error, web.HTTPError) and status_code < 500:
            self.refuse(BadRequestError(desc=error.log_message or error.reason or ""))
        else:
            self.answer(500, replies.JSON_TYPE, replies.unknown_error_json(self.context.version))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log unexpected exceptions with their traceback; `refuse` logs the expected ones."""
        if not isinstance(value, NodeError | web.HTTPError):
            where = f"{self.request.method} {self.request.path}"
            log.error("%s failed", where, exc_info=(typ, value, tb))

    def refuse(self, error: NodeError) -> None:
        """Answer with an error's status and 8-key body; log errors that the node caused."""
        if error.status >= 500 and not isinstance(error, ModuleRefusedError):
            log.warning("%s %s: %s", self.request.method, self.request.path, error)
        if error.retry_after_s is not None:
            self.set_header("Retry-After", str(error.retry_after_s))
        body = replies.error_json(error, self.context.version)
        self.answer(error.status, replies.JSON_TYPE, body)

    def wrong_method(self, allowed: list[str]) -> None:
        """Answer 405 with the methods that the path has."""
        self.set_header("Allow", ", ".join(allowed))
        self.answer(405, replies.TEXT_TYPE, b"Method Not Allowed\n")

    def unknown_path(self) -> None:
        """Answer 404 with plain text."""
        self.answer(404, replies.TEXT_TYPE, b"404 page not found\n")

    def redirect_to(self, path: str, status: int) -> None:
        """Redirect the client to another path of this node, with the same query string."""
        query = f"?{self.request.query}" if self.request.query else ""
        self.set_header("Location", path + query)
        self.set_status(status)
        self.finish()

    def answer(self, status: int, content_type: str, body: bytes) -> None:
        """Send a whole answer."""
        self.set_status(status)
        self.set_header("Content-Type", content_type)
        self.finish(body)

    def compute_etag(self) -> str | None:
        """None: answers are not cached."""
        return None


@web.stream_request_body
class ManagementHandler(BaseHandler):
    """Serves all declared routes."""

    _match: Match | None = None
    _gone = False

    def initialize(self, services: _Services) -> None:
        """Tornado's constructor hook."""
        super().initialize(services)
        self._body = bytearray()
        self._received = 0
        self._limit = JSON_LIMIT_BYTES
        self._refusal: Callable[[], None] | None = None
        self._trail: Trail | None = None
        self._error = ""

    def set_default_headers(self) -> None:
        """Called by Tornado for every answer, errors included."""
        super().set_default_headers()
        self._name_operation()

    async def prepare(self) -> None:
        """Find the route and authenticate the caller.

        A refusal is sent after the body has been read and dropped. Tornado closes a connection
        that is answered earlier, and a client that is still sending might never see the answer.
        Two kinds of requests are refused at once: those with an `Expect` header, and those whose
        stated length is above `_DRAIN_FACTOR` times the limit.
        """
        if self.request.method == "OPTIONS":
            return
        verdict = self._verdict()
        drained = _DRAIN_FACTOR * self._limit
        stated = self._stated_length()
        connection: Any = self.request.connection
        connection.set_max_body_size(max(drained, stated))
        if verdict is not None and (stated > drained or "Expect" in self.request.headers):
            self.set_header("Connection", "close")
            verdict()
        self._refusal = verdict

    def _verdict(self) -> Callable[[], None] | None:
        """The refusal of a request that is wrong whatever its body holds; None to go on."""
        path = self._path()
        try:
            match = find_route(ROUTES, self.request.method or "", path)
        except WrongMethod as wrong:
            return partial(self.wrong_method, wrong.allowed)
        except NotFoundError:
            return partial(self._redirect_or_unknown, path)
        self._match = match
        self._name_operation()
        self._trail = Trail(
            match.route.operation,
            self.request.method or "",
            path,
            self.request.query,
            self.request.remote_ip or "",
            self.context.clock,
        )
        if match.route.upload:
            self._limit = self.context.upload_limit_bytes + _MULTIPART_SLACK
        try:
            self._caller = self._authenticate(match.route)
        except NodeError as error:
            return partial(self.refuse, error)
        if self._stated_length() > self._limit:
            return partial(self.refuse, self._too_large(match, self._stated_length()))
        return None

    def _stated_length(self) -> int:
        return stated_length(self.request.headers.get("Content-Length", ""))

    def data_received(self, chunk: bytes) -> None:
        """Collect the body. Bytes above the limit, and bodies of refused requests, are dropped."""
        self._received += len(chunk)
        if self._refusal is None and self._received <= self._limit and not self._finished:
            self._body += chunk
            if not self.context.room.take(len(chunk)):
                self.set_header("Connection", "close")
                self.refuse(NO_ROOM)
        else:
            self._let_go()

    def _let_go(self) -> None:
        self.context.room.give_back(len(self._body))
        self._body = bytearray()

    async def _serve(self, *_: str) -> None:
        if self._refusal is not None:
            self._refusal()
            return
        match, form, trail = self._match, _NO_FORM, self._trail
        assert match is not None
        assert trail is not None
        if self._received > self._limit:
            raise self._too_large(match, self._received)
        body = bytes(self._body)
        if match.route.upload:
            form = await self._form(body)
            body = form.info or b""
        call: Call[Any, Any] = Call(
            context=dataclasses.replace(
                self.context, registry=AuditedRegistry(self.context.registry, trail)
            ),
            workers=self._services.workers,
            path=match.parameters,
            body=self._bound_body(match, form, body),
            query=match.route.query and bind_query(self._query(), match.route.query),
            form=form,
            throttle=self._services.throttle,
            trail=trail,
            caller=self._caller and self._caller.account,
            key=self._caller and self._caller.key,
            peer=self.request.remote_ip or "",
            host=self.request.headers.get("Host", ""),
            last_event_id=self.request.headers.get("Last-Event-ID", ""),
        )
        await self._reply(await match.route.handler(call))

    get = post = put = delete = patch = head = _serve

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an unknown HTTP method as one that the path does not have: 405, or 404."""
        if status_code != 405:
            super().write_error(status_code, **kwargs)
            return
        try:
            find_route(ROUTES, self.request.method or "", self._path())
        except WrongMethod as wrong:
            self.wrong_method(wrong.allowed)
        except NotFoundError:
            self.unknown_path()

    def refuse(self, error: NodeError) -> None:
        """Answer with an error, and keep its key for the audit log."""
        self._error = error.key
        super().refuse(error)

    def on_finish(self) -> None:
        """Called by Tornado when the answer has been sent."""
        self._let_go()
        if self._trail is not None:
            status = self.get_status()
            error = self._error or ("UnknownError" if status >= 500 else "")
            self._services.notes.ended(self._trail, status, error)

    def _path(self) -> str:
        prefix = next(prefix for prefix in PREFIXES if self.request.path.startswith(prefix))
        return self.request.path[len(prefix) :]

    def _redirect_or_unknown(self, path: str) -> None:
        method = self.request.method or ""
        patterns = [route.segments for route in ROUTES if route.method == method]
        fixed = fixed_path([*patterns, *_EVENT_PATTERNS.get(method, ())], path)
        if fixed is None or fixed == path:
            self.unknown_path()
            return
        target = self.request.path.removesuffix(path) + fixed
        self.redirect_to(target, 301 if method == "GET" and "//" not in path else 307)

    def _authenticate(self, route: Route) -> Caller | None:
        if route.auth is Auth.ANYBODY:
            return None
        if route.auth is Auth.SETUP and not self.context.reader.has_administrator():
            require_setup_code(self.request.headers.get("X-Setup-Code"), self.context.setup_code())
            return None
        token = token_of(
            self.get_query_argument("authorization", None),
            self.request.headers.get("Authorization"),
        )
        caller = self._caller_with(token, route)
        if route.auth is not Auth.ACCOUNT:
            require_admin(caller.account)
        return caller

    def _caller_with(self, token: str, route: Route) -> Caller:
        reader, trail = self.context.reader, self._trail
        assert trail is not None
        if not is_access_key(token):
            account = account_of(reader, self.context.token_key, token)
            trail.about(account)
            return Caller(account, None)
        key = key_of(reader, token, now_ms())
        trail.with_key(key)
        group = route.group or "no group"
        account = account_of_key(reader, key, group, route.permission, route.operation)
        trail.about(account)
        self._services.key_use.note(key, now_ms())
        return Caller(account, key)

    def _query(self) -> dict[str, list[str]]:
        return urllib.parse.parse_qs(self.request.query, keep_blank_values=True, errors="replace")

    def _bound_body(self, match: Match, form: Form, body: bytes) -> Any:
        kind = match.route.body
        if kind is None:
            return None
        if not match.route.upload:
            return bind_body(body, kind)
        empty = [FieldError("file.Size", MISSING, "body")] if form.file == b"" else []
        try:
            bound = bind_body(body, kind, "info")
        except BadRequestError as error:
            fields = error.fields() or []
            if form.info is None and fields:
                fields = [FieldError("info", MISSING, "body")]
            if form.file is None and match.route.method == "POST":
                fields = [FieldError("file", MISSING, "body"), *fields]
            raise BadRequestError(*empty, *fields) from None
        if empty:
            raise BadRequestError(*empty)
        return bound

    async def _form(self, body: bytes) -> Form:
        content_type = self.request.headers.get("Content-Type", "")
        owner = self._caller.account.account_id if self._caller else 0
        run = self._services.workers.uploads.run
        return await run(owner, lambda: parse_form(content_type, body))

    async def _reply(self, result: object) -> None:
        if result is None:
            self.set_status(204)
            self.finish()
        elif isinstance(result, Done):
            for value in warnings.header_values(result.warnings):
                self.add_header("Warning", value)
            self.set_status(204)
            self.finish()
        elif isinstance(result, Download):
            await self._send(result)
        elif isinstance(result, Stream):
            await self._stream(result)
        elif isinstance(result, PlainText):
            self.answer(200, replies.TEXT_TYPE, result.text.encode())
        else:
            status = 201 if self.request.method == "POST" else 200
            self.answer(status, replies.JSON_TYPE, replies.to_json(result))

    async def _send(self, download: Download) -> None:
        """Send a file in pieces of 1 MiB: an exported project may have gigabytes."""
        run = partial(asyncio.get_running_loop().run_in_executor, None)
        try:
            file = await run(download.path.open, "rb")
        except FileNotFoundError:
            raise ResourceNotFoundError(resource=download.path.stem) from None
        finally:
            if download.passing:
                download.path.unlink(missing_ok=True)
        filename = _UNSAFE_IN_FILENAMES.sub("_", download.filename) or "module.wasm"
        self.set_header("Content-Disposition", f"attachment; filename={filename}")
        self.set_header("Content-Type", "text/plain")
        try:
            left = os.fstat(file.fileno()).st_size
            self.set_header("Content-Length", str(left))
            while left > 0 and (piece := await run(file.read, _DOWNLOAD_PIECE)):
                left -= len(piece)
                self.write(piece)
                if left > 0:
                    await self.flush()
            # The last piece leaves with the end of the request. A client that has the whole file
            # may go away, and the node may stop, while nothing of the request is left to do.
            self.finish()
        except iostream.StreamClosedError:
            return  # the client has gone away
        finally:
            file.close()

    async def _stream(self, stream: Stream) -> None:
        with self._services.workers.followers.taken(stream.account_id):
            self.set_header("Content-Type", "text/event-stream; charset=utf-8")
            try:
                await self.flush()
                async for chunk in stream.chunks:
                    if self._gone:
                        break
                    if chunk:
                        self.write(chunk)
                        await self.flush()
                self.finish()
            except iostream.StreamClosedError:
                return  # the client closed the stream
            except NodeError as error:
                # The status line has been sent already, so the only way to report is to end.
                log.warning("%s %s: %s", self.request.method, self.request.path, error)
                self.finish()
            finally:
                await stream.chunks.aclose()

    def on_connection_close(self) -> None:
        """Called by Tornado when the client goes away before the answer ends."""
        super().on_connection_close()  # cancels the wait for the rest of the body
        self._gone = True
        self._let_go()

    def _name_operation(self) -> None:
        if self._match is not None:
            operation = self._match.route.operation
            self.set_header("X-Meta", f"{SOURCE}@{self.context.version}/{operation}")

    def _too_large(self, match: Match, size: int) -> NodeError:
        if match.route.upload:
            limit = self.context.upload_limit_bytes
            return UploadFileSizeLimitError(size=size, limit_bytes=limit)
        return PayloadTooLargeError(size=size, limit_bytes=self._limit)


def parse_form(content_type: str, body: bytes) -> Form:
    """Parse a multipart body into `file`, `info` and `cache`; each may be sent as file or text.

    Other parts are ignored. A body of another content type gives an empty form.

    Raises:
        BadRequestError: the body is not well-formed, or the Content-Type is too long.
    """
    arguments: dict[str, list[bytes]] = {}
    files: dict[str, list[httputil.HTTPFile]] = {}
    if len(content_type) > _CONTENT_TYPE_LIMIT:
        reason = f"the Content-Type has more than {_CONTENT_TYPE_LIMIT} characters"
        raise BadRequestError(FieldError("body", reason, "body"))
    head = Message()
    head["Content-Type"] = content_type
    if head.get_content_type() == "multipart/form-data":
        boundary = (head.get_boundary() or "").encode("latin-1", "replace")
        try:
            if not boundary:
                raise httputil.HTTPInputError("multipart boundary not found")
            parts = _without_preamble(body, b"--" + boundary)
            httputil.parse_multipart_form_data(boundary, parts, arguments, files)
        except (httputil.HTTPInputError, UnicodeDecodeError) as error:
            raise BadRequestError(FieldError("body", str(error), "body")) from None
    file = files.get("file", [None])[0]
    info, cache = (
        files[name][0].body if name in files else arguments.get(name, [None])[0]
        for name in ("info", "cache")
    )
    if file is not None:
        return Form(file.body, file.filename, info, cache)
    return Form(arguments.get("file", [None])[0], "", info, cache)


def _without_preamble(body: bytes, delimiter: bytes) -> bytes:
    """The body without the preamble that may precede the first delimiter (RFC 2046, 5.1.1)."""
    if body.startswith(delimiter):
        return body
    at = body.find(b"\r\n" + delimiter)
    return body[at + 2 :] if at >= 0 else body


@web.stream_request_body
class BodilessHandler(BaseHandler):
    """Answers without the request body, which is dropped while it arrives."""

    def data_received(self, chunk: bytes) -> None:
        """Called by Tornado for each part of a body."""


class RootHandler(BodilessHandler):
    """`/`: answers 204, so that a client can see that the node is up."""

    def get(self) -> None:
        """204, nothing else."""
        self.set_status(204)

    head = get

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Any other method names those there are."""
        if status_code == 405:
            self.wrong_method(["GET", "HEAD"])
        else:
            super().write_error(status_code, **kwargs)


class PageHandler(BodilessHandler):
    """A page of the node's own that can only be read (GET)."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Any other method names those there are."""
        if status_code == 405:
            self.wrong_method(["GET"])
        else:
            super().write_error(status_code, **kwargs)


class LivenessHandler(PageHandler):
    """`/liveness`: the state of each component."""

    def get(self) -> None:
        """Shape: `{"<component>": "ok" | "<error>"}`; see `health.liveness`."""
        status, body = health.liveness(self.context.health())
        self.answer(status, replies.JSON_TYPE, replies.to_json(body))


class ReadinessHandler(PageHandler):
    """`/readiness`: whether the node should receive events now."""

    def get(self) -> None:
        """Shape: `{"ready": bool, "reasons": ["..."]}`; see `health.readiness`."""
        status, reasons = health.readiness(self.context.health())
        body = {"ready": not reasons, "reasons": reasons}
        self.answer(status, replies.JSON_TYPE, replies.to_json(body))


class MetricsHandler(PageHandler):
    """`/metrics`: the node's metrics in the Prometheus format."""

    async def get(self) -> None:
        """Send the metrics as text (interface document, 1.2).

        The setting `metrics` says who may read them: nobody (`off`, answered 404), local clients
        and administrators (`loopback`), or administrators alone.
        """
        context = self.context
        if context.metrics == "off":
            self.unknown_path()
            return
        local = prometheus.is_local(self.request.remote_ip or "", self.request.headers)
        if not (local and context.metrics == "loopback"):
            self._require_administrator()
        table = metrics.shared.table
        node = prometheus.Node(
            context.version,
            table.read() if table is not None else (),
            context.health(),
            context.measure(),
        )
        accept = self.request.headers.get("Accept", "")
        kind, body = await asyncio.to_thread(prometheus.render, node, accept)
        self.answer(200, kind, body)

    def _require_administrator(self) -> None:
        """Require the same rights as the route `/health`, also of an access key.

        Raises:
            NodeError: the caller is not an administrator, or its access key lacks the group.
        """
        token = token_of(None, self.request.headers.get("Authorization"))
        reader = self.context.reader
        if is_access_key(token):
            key = key_of(reader, token, now_ms())
            group = GROUPS["health"]
            account = account_of_key(reader, key, group, Permission.READONLY, "GetMetrics")
            self._services.key_use.note(key, now_ms())
        else:
            account = account_of(reader, self.context.token_key, token)
        require_admin(account)


class VersionHandler(PageHandler):
    """`/version`: the name and version of the node."""

    def get(self) -> None:
        """Plain text."""
        self.answer(200, replies.TEXT_TYPE, f"fieldbrook@{self.context.version}".encode())


class DescriptionHandler(PageHandler):
    """`/srv-applet-mgr`: the interface as an OpenAPI document, without authentication."""

    def get(self) -> None:
        """JSON (interface document, 1.5)."""
        self.answer(200, replies.JSON_TYPE, _description(self.context.version))


class DescriptionPageHandler(PageHandler):
    """`/srv-applet-mgr/docs`: the OpenAPI document as an HTML page."""

    def get(self) -> None:
        """Send the page; it loads no resources and runs no scripts."""
        self.set_header("Content-Security-Policy", openapi_page.POLICY)
        self.answer(200, "text/html; charset=utf-8", _description_page(self.context.version))


@functools.cache
def _description(version: str) -> bytes:
    return replies.to_json(openapi.describe(ROUTES, PREFIXES, version))


@functools.cache
def _description_page(version: str) -> bytes:
    return openapi_page.render(openapi.describe(ROUTES, PREFIXES, version)).encode()


class UnknownPathHandler(BodilessHandler):
    """Answers every path that no other handler serves."""

    def initialize(self, services: _Services, paths: tuple[re.Pattern[str], ...] = ()) -> None:
        """Tornado's constructor hook; `paths` are the patterns that other handlers serve."""
        super().initialize(services)
        self._paths = paths

    def _unknown(self) -> None:
        """Answer 404, or redirect to the same path with single slashes (interface document, 13).

        Only a served path is a target of the redirect: a browser takes a path that begins with a
        slash and a backslash for the address of another site.
        """
        clean = clean_path(self.request.path)
        if clean != self.request.path and any(path.match(clean) for path in self._paths):
            self.redirect_to(clean, 307)
        else:
            self.unknown_path()

    get = post = put = delete = patch = head = _unknown

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an unknown HTTP method with 404 as well."""
        if status_code == 405:
            self.unknown_path()
        else:
            super().write_error(status_code, **kwargs)
