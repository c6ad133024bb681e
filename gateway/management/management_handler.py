"""The HTTP handler that serves every declared route.

It checks the token before it reads the body, and collects at most as many bytes of the body as
the route allows.

Source: interface document, section 1.
"""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Callable
from functools import partial
from typing import Any

from tornado import web

from fieldbrook.core.errors import (
    SOURCE,
    BadRequestError,
    FieldError,
    NoAdminPermissionError,
    NodeError,
    NotFoundError,
    OwnedElsewhereError,
    PayloadTooLargeError,
    UploadFileSizeLimitError,
)
from fieldbrook.gateway.auth import Caller, request_token, require_admin, require_setup_code
from fieldbrook.gateway.events.request import parse_content_length
from fieldbrook.gateway.links.pending_event import Outcome
from fieldbrook.gateway.listening.listener import peer_of
from fieldbrook.gateway.management.base_handler import BaseHandler, Services
from fieldbrook.gateway.management.framework.audit_trail import AuditedRegistry, AuditTrail
from fieldbrook.gateway.management.framework.binding import (
    JSON_LIMIT_BYTES,
    MISSING,
    bind_body,
    bind_query,
)
from fieldbrook.gateway.management.framework.route import (
    Auth,
    Call,
    Form,
    Match,
    Route,
    WrongMethod,
    correct_path,
    find_route,
)
from fieldbrook.gateway.management.multipart import parse_form
from fieldbrook.gateway.management.prefixes import PREFIXES
from fieldbrook.gateway.management.relay import relay
from fieldbrook.gateway.management.responses import respond
from fieldbrook.gateway.management.route_table import ROUTES
from fieldbrook.gateway.memory_budget import BUDGET_EXCEEDED, MULTIPART_SLACK, Charge
from fieldbrook.storage.data_lock import RUN

_TRUSTED_MS = 1_000  # after this, a caller is authenticated again: keys and tokens expire
_DRAIN_FACTOR = 4  # refused bodies up to 4 limits are read, so that the refusal arrives
_EVENT_PATTERNS = {"POST": (("event", "{channel}"),)}  # served by the event handlers
_OF_HOST = frozenset({"cluster", "health", "node_log"})  # a disconnected host answers these, too
_NO_FORM = Form(None, "", None)


@web.stream_request_body
class ManagementHandler(BaseHandler):
    """Serves all declared routes."""

    client_gone = False
    _match: Match | None = None

    def initialize(self, services: Services) -> None:
        """Tornado's constructor hook."""
        super().initialize(services)
        self._body = bytearray()
        peer = peer_of(self.request.remote_ip or "")
        self._charge = Charge(self.context.memory_budget, peer)
        self._received = 0
        self._limit = JSON_LIMIT_BYTES
        self._refusal: Callable[[], None] | None = None
        self._audit_trail: AuditTrail | None = None
        self._caller: Caller | None = None
        self._registry_version = self._authenticated_ms = 0
        self._has_ended_itself = False
        self._error_key = ""

    def set_default_headers(self) -> None:
        """Called by Tornado for every answer, errors included."""
        super().set_default_headers()
        self._set_operation_header()

    async def prepare(self) -> None:
        """Find the route and authenticate the caller.

        A refusal is sent after the body has been read and dropped. Tornado closes a connection
        that is answered earlier, and a client that is still sending might never see the answer.
        Two kinds of requests are refused at once: those with an `Expect` header, and those whose
        stated length is above `_DRAIN_FACTOR` times the limit.
        """
        if self.request.method == "OPTIONS":
            return
        refusal = self._find_refusal()
        drained = _DRAIN_FACTOR * self._limit
        stated = self._content_length()
        connection: Any = self.request.connection
        connection.set_max_body_size(max(drained, stated))
        if refusal is not None and (stated > drained or "Expect" in self.request.headers):
            self.set_header("Connection", "close")
            refusal()
        self._refusal = refusal

    def _find_refusal(self) -> Callable[[], None] | None:
        """Return the refusal of a request that is wrong regardless of its body; None if there is
        none."""
        method, path = self.request.method or "", self._path()
        try:
            match = find_route(ROUTES, method, path)
        except WrongMethod as wrong:
            return partial(self.wrong_method, wrong.allowed)
        except NotFoundError:
            return partial(self._redirect_or_unknown, path)
        self._match = match
        self._set_operation_header()
        query, peer = self.request.query, self.request.remote_ip or ""
        operation, clock = match.route.operation, self.context.clock
        self._audit_trail = AuditTrail(operation, method, path, query, peer, clock)
        if match.route.upload:
            self._limit = self.context.upload_limit_bytes + MULTIPART_SLACK
        self._registry_version = self.context.reader.version()
        self._authenticated_ms = clock()
        try:
            self._caller = self._authenticate(match.route, self._audit_trail)
        except NodeError as error:
            return partial(self.refuse, error)
        if self._content_length() > self._limit:
            return partial(self.refuse, self._too_large(match, self._content_length()))
        return None

    def _authenticate(self, route: Route, audit_trail: AuditTrail) -> Caller | None:
        if route.segments[0] not in _OF_HOST:
            self.context.reader.lease.require()
        if route.auth is Auth.ANYBODY:
            return None
        if route.auth is Auth.SETUP and not self.context.reader.has_administrator():
            require_setup_code(self.request.headers.get("X-Setup-Code"), self.context.setup_code())
            return None
        query_token = self.get_query_argument("authorization", None)
        token = request_token(query_token, self.request.headers.get("Authorization"))
        group = route.group or "no group"
        caller = self._services.authenticate(
            token, group, route.permission, route.operation, audit_trail
        )
        if route.auth is not Auth.ACCOUNT:
            require_admin(caller.account)
        return caller

    @property
    def account_id(self) -> int:
        """The account of the caller; 0 for a route without authentication."""
        return self._caller.account.account_id if self._caller else 0

    def data_received(self, chunk: bytes) -> None:
        """Collect the body. Bytes above the limit, and bodies of refused requests, are dropped."""
        self._received += len(chunk)
        if self._refusal is None and self._received <= self._limit and not self._finished:
            self._body += chunk
            if not self._charge.set(self._received):
                self.set_header("Connection", "close")
                self.refuse(BUDGET_EXCEEDED)
        else:
            self._drop_body()

    def _drop_body(self) -> None:
        self._body = bytearray()
        self._charge.set(0)

    async def _serve(self, *_: str) -> None:
        try:
            await self._serve_here()
        except OwnedElsewhereError as error:
            body, run_dir = bytes(self._body), self.context.settings.data / RUN
            await relay(self, self.request, body, error, run_dir)

    async def _serve_here(self) -> None:
        if self._refusal is not None:
            self._refusal()
            return
        match, form, audit_trail = self._match, _NO_FORM, self._audit_trail
        assert match is not None
        assert audit_trail is not None
        if self._received > self._limit:
            raise self._too_large(match, self._received)
        body = bytes(self._body)
        if match.route.upload:
            form = await self._parse_form(body)
            body = form.info or b""
        late = self.context.clock() - self._authenticated_ms >= _TRUSTED_MS
        if late or self.context.reader.version() != self._registry_version:
            # The account, the login or the key may have ended while the body arrived.
            self._registry_version = self.context.reader.version()
            self._caller = self._authenticate(match.route, audit_trail)
        account_id = self._caller.account.account_id if self._caller is not None else 0
        registry = AuditedRegistry(
            self.context.registry,
            audit_trail,
            self._services.workers.commands_of(account_id),
            self.require_caller,
            self._note_own_change,
        )
        query = urllib.parse.parse_qs(self.request.query, keep_blank_values=True, errors="replace")
        call: Call[Any, Any] = Call(
            context=dataclasses.replace(
                self.context,
                registry=registry,
                command=self._command,
                chain_command=self._chain_command,
            ),
            workers=self._services.workers,
            path=match.parameters,
            body=_bind_body(match.route, form, body),
            query=match.route.query and bind_query(query, match.route.query),
            form=form,
            throttle=self._services.throttle,
            audit_trail=audit_trail,
            caller=self._caller,
            peer=self.request.remote_ip or "",
            host=self.request.headers.get("Host", ""),
            last_event_id=self.request.headers.get("Last-Event-ID", ""),
            channels=self._services.channels,
        )
        if self._caller is None:
            await self._respond(match.route, call)
        else:
            work = self._respond(match.route, call)
            await self._services.account_shares.run(self._caller.account.account_id, work)

    async def _respond(self, route: Route, call: Call[Any, Any]) -> None:
        await respond(self, await route.handler(call), call.workers)

    get = post = put = delete = patch = head = _serve

    def require_caller(self, *, unexpired: bool = False) -> None:
        """Refuse to continue for a caller whose rights have ended since the request began.

        A request may wait for minutes, for a compiler or for handlers. Before its changes, the
        rights are checked again. If its own commands have ended the rights, the request still
        continues.

        Args:
            unexpired: whether the token or the access key must also not have expired meanwhile.

        Raises:
            NodeError: the account, the login or the access key has ended, or has fewer rights now.
        """
        version = self.context.reader.version()
        late = unexpired and self.context.clock() - self._authenticated_ms >= _TRUSTED_MS
        if self._has_ended_itself or (version == self._registry_version and not late):
            return
        match, audit_trail, known = self._match, self._audit_trail, self._caller
        assert match is not None
        assert audit_trail is not None
        if known is not None:
            self._caller = self._authenticate(match.route, audit_trail)
            if self._caller is not None and self._caller.account.role != known.account.role:
                raise NoAdminPermissionError(reason="the role of the account has changed meanwhile")
        self._registry_version = version
        self._authenticated_ms = self.context.clock()

    def _note_own_change(self) -> None:
        try:
            self.require_caller()
        except NodeError:
            self._has_ended_itself = True

    async def _command(self, project_id: int, command: str, payload: list[Any]) -> Outcome:
        self.require_caller()
        return await self.context.command(project_id, command, payload)

    async def _chain_command(self, chain_id: int, command: str, target: int) -> None:
        self.require_caller()
        await self.context.chain_command(chain_id, command, target)

    async def _parse_form(self, body: bytes) -> Form:
        content_type = self.request.headers.get("Content-Type", "")
        run = self._services.workers.uploads.run
        return await run(self.account_id, lambda: parse_form(content_type, body))

    def refuse(self, error: NodeError) -> None:
        """Answer with an error, and note its key for the audit log."""
        self._error_key = error.key
        super().refuse(error)

    def refuse_method(self) -> None:
        """Answer an unknown HTTP method like a method that the path does not have: 405, or 404."""
        try:
            find_route(ROUTES, self.request.method or "", self._path())
        except WrongMethod as wrong:
            self.wrong_method(wrong.allowed)
        except NotFoundError:
            self.unknown_path()

    def on_finish(self) -> None:
        """Called by Tornado when the answer has been sent."""
        self._drop_body()
        if self._audit_trail is not None:
            status = self.get_status()
            error = self._error_key or ("UnknownError" if status >= 500 else "")
            self._services.audit_queue.add(self._audit_trail, status, error)

    def on_connection_close(self) -> None:
        """Called by Tornado when the client disconnects before the answer ends."""
        super().on_connection_close()  # cancels the wait for the rest of the body
        self.client_gone = True
        self._drop_body()

    def _content_length(self) -> int:
        return parse_content_length(self.request.headers.get("Content-Length", ""))

    def _path(self) -> str:
        prefix = next(prefix for prefix in PREFIXES if self.request.path.startswith(prefix))
        return self.request.path[len(prefix) :]

    def _redirect_or_unknown(self, path: str) -> None:
        method = self.request.method or ""
        patterns = [route.segments for route in ROUTES if route.method == method]
        correct = correct_path([*patterns, *_EVENT_PATTERNS.get(method, ())], path)
        if correct is None or correct == path:
            self.unknown_path()
            return
        target = self.request.path.removesuffix(path) + correct
        self.redirect_to(target, 301 if method == "GET" and "//" not in path else 307)

    def _set_operation_header(self) -> None:
        if self._match is not None:
            operation = self._match.route.operation
            self.set_header("X-Meta", f"{SOURCE}@{self.context.version}/{operation}")

    def _too_large(self, match: Match, size: int) -> NodeError:
        if match.route.upload:
            limit = self.context.upload_limit_bytes
            return UploadFileSizeLimitError(size=size, limit_bytes=limit)
        return PayloadTooLargeError(size=size, limit_bytes=self._limit)


def _bind_body(route: Route, form: Form, body: bytes) -> Any:
    """Bind the JSON of a request: the whole body, or the part `info` of an upload.

    Raises:
        BadRequestError: a field or a part of the form is wrong or missing.
    """
    if route.body is None:
        return None
    if not route.upload:
        return bind_body(body, route.body)
    empty = [FieldError("file.Size", MISSING, "body")] if form.file == b"" else []
    try:
        bound = bind_body(body, route.body, "info")
    except BadRequestError as error:
        fields = error.fields() or []
        if form.info is None and fields:
            fields = [FieldError("info", MISSING, "body")]
        if form.file is None and route.method == "POST":
            fields = [FieldError("file", MISSING, "body"), *fields]
        raise BadRequestError(*empty, *fields) from None
    if empty:
        raise BadRequestError(*empty)
    return bound
