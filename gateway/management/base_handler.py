"""Base classes of the HTTP handlers: headers of all answers, and errors as JSON.

Source: interface document, section 1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from tornado import web

from fieldbrook.core.clock import now_ms
from fieldbrook.core.errors import BadRequestError, ModuleRefusedError, NodeError
from fieldbrook.gateway import replies
from fieldbrook.gateway.access_key_usage import AccessKeyUsage
from fieldbrook.gateway.auth import (
    Caller,
    account_from_access_key,
    caller_from_token,
    valid_access_key,
)
from fieldbrook.gateway.management.account_shares import AccountShares
from fieldbrook.gateway.management.framework.audit_trail import AuditQueue, AuditTrail
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.framework.workers import Workers
from fieldbrook.gateway.management.live.channels import Channels
from fieldbrook.gateway.management.sign_in.throttle import SignInThrottle
from fieldbrook.gateway.management.unauthenticated import UnauthenticatedStreams
from fieldbrook.security.access_keys import Permission, is_access_key

log = logging.getLogger(__name__)


class Services:
    """The state that all handlers of one gateway share."""

    def __init__(self, context: ManagementContext) -> None:
        self.context = context
        self.workers = Workers()
        self.account_shares = AccountShares()
        self.throttle = SignInThrottle()
        self.audit_queue = AuditQueue(context.registry)
        self.channels = Channels()
        self.unauthenticated = UnauthenticatedStreams()
        self._access_key_usage = AccessKeyUsage(context.registry)

    def authenticate(
        self,
        token: str,
        group: str,
        permission: Permission,
        operation: str,
        audit_trail: AuditTrail | None = None,
    ) -> Caller:
        """Find the account of a token; an access key needs rights on `group`.

        Raises:
            NodeError: the token is not valid, or the access key lacks the permission.
        """
        reader = self.context.reader
        if not is_access_key(token):
            caller = caller_from_token(
                reader,
                self.context.token_key,
                token,
                now_s=now_ms() // 1000,
                lifetime_s=self.context.token_lifetime_s,
            )
        else:
            key = valid_access_key(reader, token, now_ms())
            if audit_trail is not None:
                audit_trail.set_key(key)
            caller = Caller(account_from_access_key(reader, key, group, permission, operation), key)
            self._access_key_usage.record(key, now_ms())
        if audit_trail is not None:
            audit_trail.set_account(caller.account)
        return caller


class BaseHandler(web.RequestHandler):
    """Base class of all handlers: security and CORS headers, errors in the interface's form."""

    methods: tuple[str, ...] = ("GET",)
    """The methods that are named in the answer to a wrong method."""
    sent: asyncio.Future[None]
    """Set by `answer`; done when the socket has accepted the whole answer."""

    def initialize(self, services: Services) -> None:
        """Tornado's constructor hook."""
        self._services = services
        self.context = services.context

    def set_default_headers(self) -> None:
        """Called by Tornado for every answer, errors included."""
        self.clear_header("Server")
        self.clear_header("Content-Type")
        tls, host = self.request.protocol == "https", self.request.host_name
        for name, value in replies.security_headers(tls=tls, host=host).items():
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
            self.refuse_method()
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

    def refuse_method(self) -> None:
        """Answer a method that the handler does not have."""
        self.wrong_method(self.methods)

    def wrong_method(self, allowed: Sequence[str]) -> None:
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
        self.sent = self.finish(body)

    def compute_etag(self) -> str | None:
        """Return None, because answers are not cached."""
        return None


@web.stream_request_body
class BodilessHandler(BaseHandler):
    """Answers without the request body, which is dropped while it arrives."""

    def data_received(self, chunk: bytes) -> None:
        """Called by Tornado for each part of a body."""
