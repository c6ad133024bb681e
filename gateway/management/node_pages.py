"""The node's own pages: liveness, readiness, metrics, version and the OpenAPI document."""

from __future__ import annotations

import asyncio
import functools
import re

from fieldbrook.gateway import replies
from fieldbrook.gateway.auth import request_token, require_admin
from fieldbrook.gateway.management.base_handler import BodilessHandler, Services
from fieldbrook.gateway.management.framework.route import GROUPS
from fieldbrook.gateway.management.openapi import document as openapi
from fieldbrook.gateway.management.openapi import page as openapi_page
from fieldbrook.gateway.management.prefixes import PREFIXES
from fieldbrook.gateway.management.route_table import ROUTES
from fieldbrook.gateway.metrics import prometheus
from fieldbrook.gateway.request_target import clean_path
from fieldbrook.observability import health, metrics_table
from fieldbrook.security.access_keys import Permission


class RootHandler(BodilessHandler):
    """`/`: answers 204, so that a client can see that the node is up."""

    methods = ("GET", "HEAD")

    def get(self) -> None:
        """Answer 204 without a body."""
        self.set_status(204)

    head = get


class LivenessHandler(BodilessHandler):
    """`/liveness`: the state of each component."""

    def get(self) -> None:
        """Shape: `{"<component>": "ok" | "<error>"}`; see `health.liveness`."""
        status, body = health.liveness(self.context.health())
        self.answer(status, replies.JSON_TYPE, replies.to_json(body))


class ReadinessHandler(BodilessHandler):
    """`/readiness`: whether the node should receive events now."""

    def get(self) -> None:
        """Shape: `{"ready": bool, "reasons": ["..."]}`; see `health.readiness`."""
        status, reasons = health.readiness(self.context.health())
        body = {"ready": not reasons, "reasons": reasons}
        self.answer(status, replies.JSON_TYPE, replies.to_json(body))


class MetricsHandler(BodilessHandler):
    """`/metrics`: the node's metrics in the Prometheus format."""

    async def get(self) -> None:
        """Send the metrics as text (interface document, 1.2).

        The setting `metrics` determines who may read them: nobody (`off`, answered 404), local
        clients and administrators (`loopback`), or only administrators.
        """
        context = self.context
        if context.metrics == "off":
            self.unknown_path()
            return
        local = prometheus.is_local(self.request.remote_ip or "", self.request.headers)
        if not (local and context.metrics == "loopback"):
            # The same rights as for the route `/health`, also for an access key.
            token = request_token(None, self.request.headers.get("Authorization"))
            caller = self._services.authenticate(
                token, GROUPS["health"], Permission.READONLY, "GetMetrics"
            )
            require_admin(caller.account)
        table = metrics_table.shared.table
        node = prometheus.Node(
            context.version,
            table.read() if table is not None else (),
            context.health(),
            context.collect_metrics(),
        )
        accept = self.request.headers.get("Accept", "")
        kind, body = await asyncio.to_thread(prometheus.render, node, accept)
        self.answer(200, kind, body)


class VersionHandler(BodilessHandler):
    """`/version`: the name and version of the node."""

    def get(self) -> None:
        """Send the version as plain text."""
        self.answer(200, replies.TEXT_TYPE, f"fieldbrook@{self.context.version}".encode())


class DescriptionHandler(BodilessHandler):
    """`/srv-applet-mgr`: the interface as an OpenAPI document, without authentication."""

    def get(self) -> None:
        """Send the document as JSON (interface document, 1.5)."""
        self.answer(200, replies.JSON_TYPE, _description(self.context.version))


class DescriptionPageHandler(BodilessHandler):
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

    def initialize(self, services: Services, paths: tuple[re.Pattern[str], ...] = ()) -> None:
        """Tornado's constructor hook; `paths` are the patterns that other handlers serve."""
        super().initialize(services)
        self._paths = paths

    def _unknown(self) -> None:
        """Answer 404, or redirect to the same path with single slashes (interface document, 13).

        The redirect leads only to served paths, because a browser treats a path that begins with a
        slash and a backslash as the address of another site.
        """
        clean = clean_path(self.request.path)
        if clean != self.request.path and any(path.match(clean) for path in self._paths):
            self.redirect_to(clean, 307)
        else:
            self.unknown_path()

    get = post = put = delete = patch = head = _unknown

    def refuse_method(self) -> None:
        """Answer an unknown HTTP method with 404 as well."""
        self.unknown_path()
