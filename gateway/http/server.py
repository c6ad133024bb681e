"""The HTTP gateway: events and management on one port, the dashboard on another."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fieldbrook import __version__
from fieldbrook.actors import messages as m
from fieldbrook.core.errors import SettingsError, StoreError
from fieldbrook.gateway.base import GatewayActor, essential
from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.events.refusals import Refusals
from fieldbrook.gateway.events.traced import TracedEventService
from fieldbrook.gateway.http.lingering import LingeringConnections
from fieldbrook.gateway.http.ports import Port, Ports
from fieldbrook.gateway.http.tls.bridge import EndingConnections
from fieldbrook.gateway.http.tls.certificate import Certificate
from fieldbrook.gateway.listening.connections import Connections, connections_limit
from fieldbrook.gateway.listening.read_turns import ReadTurns
from fieldbrook.gateway.listening.sockets import bind
from fieldbrook.gateway.memory_budget import MULTIPART_SLACK, request_budget
from fieldbrook.gateway.registry_client import SocketRegistryClient
from fieldbrook.observability import metrics, spans
from fieldbrook.observability.health import NodeHealth
from fieldbrook.security import node_secrets as keys
from fieldbrook.storage.registry.lease import Lease
from fieldbrook.storage.registry.service import RegistryReader

if TYPE_CHECKING:
    from tornado import web

    from fieldbrook.gateway.http.site.dashboard import Dashboard
    from fieldbrook.gateway.http.tornado.applications import Applications

log = logging.getLogger(__name__)

_SWEEP_S = 1.0
_TURN_S = 0.0005
_TORNADO = "fieldbrook.gateway.http.tornado"


class HttpGateway(GatewayActor):
    """Owns the event ports and, in the first gateway process, the dashboard port."""

    async def open(self) -> None:
        """Open the registry and the event ports; everything that plain events do not need is opened
        later."""
        settings = self.settings
        self._draining = False
        self._applications: Applications | None = None
        self._turns = ReadTurns()
        self._token_key = keys.load_or_create_key(settings.data / "secrets", "token.key")
        self._reader = RegistryReader(settings.data / "registry")
        if self.host:
            self._reader.lease = Lease(self.run_dir)
        self._registry = SocketRegistryClient(self.run_dir / "registry")
        self._refusals = Refusals(settings.data, self.part, "http")
        self._events = (EventService if spans.here is None else TracedEventService)(
            self._reader,
            self._registry,
            self._token_key,
            self.projects,
            __version__,
            settings.body_limit_bytes,
            self._refusals,
            host=self.host,
        )
        self._memory_budget = request_budget(settings.upload_limit_bytes + MULTIPART_SLACK)
        self._certificate = Certificate(settings)
        # If a developer's folder cannot be read, report this before the node has started.
        dashboard = self._developers_dashboard()
        if self.host:
            # Meanwhile other hosts serve the clients, faster than this host could during its
            # imports.
            await _import_the_rest()
        self._open_ports()
        if self.part == "http:0":
            self._warn_of_hosts()
            self._connections.announce()
        self._sweeper = essential(self.loop.create_task(self._sweep()))
        self._completing = essential(self.loop.create_task(self._complete(dashboard)))

    def _open_ports(self) -> None:
        settings, context = self.settings, self._certificate.context
        self._connections = Connections(
            connections_limit(tls=context is not None), metrics.HTTP_CONNECTIONS_EVICTED
        )
        self._connections.ports.append(LingeringConnections())
        if context is not None or self.part == "http:0":
            self._connections.ports.append(EndingConnections())
        self._opening = Ports(settings, self._events, self._memory_budget, self._connections)
        self._ports: list[Port] = []
        shared, slot = settings.http_processes > 1, int(self.part.removeprefix("http:"))
        for number in (settings.http_port, settings.event_port):
            if number is not None:
                at = bind(settings.bind, number, shared=shared, slot=slot)
                self._ports.append(self._opening.open(at, context))

    # ---------------------------------------------------------------- after the event ports

    async def _complete(self, dashboard: Dashboard | None) -> None:
        """Serve all requests other than plain events of devices."""
        with _short_turns():
            await _import_the_rest()
            from fieldbrook.gateway.http.tornado.applications import Applications

            applications = Applications(
                *(self.settings, self.part, self.run_dir),
                events=self._events,
                projects=self.projects,
                reader=self._reader,
                registry=self._registry,
                token_key=self._token_key,
                memory_budget=self._memory_budget,
                certificate=self._certificate,
                health=self._node_health,
            )
            await applications.start()
            self._connections.ports.append(applications.relays)
            self._applications = applications
            application = applications.make(management=True)
            self._begin(self._ports[0], application)
            if self.settings.event_port is not None:
                self._begin(self._ports[1], applications.make(management=False))
            if self.part == "http:0":
                applications.serve_hosts(application)
                await self._open_dashboard(applications, application, dashboard)
        # A full garbage collection would examine all these modules again, and events would wait for
        # it.
        gc.freeze()

    def _begin(self, port: Port, application: web.Application) -> None:
        """Serve the requests of a port other than plain events."""
        from fieldbrook.gateway.http.tornado.server import TornadoServer

        for way in port.ways:
            scheme = way.server.scheme
            way.server.begin(TornadoServer(application, self.settings, scheme, self._turns))

    async def _open_dashboard(
        self,
        applications: Applications,
        application: web.Application,
        dashboard: Dashboard | None,
    ) -> None:
        """Open the dashboard port; clients that connected before wait in the port's queue."""
        from fieldbrook.gateway.http.site.dashboard import Dashboard

        settings = self.settings
        try:
            context = await asyncio.to_thread(self._certificate.dashboard_context)
            if dashboard is None:
                dashboard = await asyncio.to_thread(Dashboard.of, None)
            if self._draining:
                return
            at = bind(settings.dashboard_bind, settings.dashboard_port, shared=False)
        except SettingsError as error:
            self.post(m.Failed(self.part, str(error)))
            return
        port = self._opening.open(at, context, settings.plain_dashboard)
        self._ports.append(port)
        self._begin(port, applications.with_pages(application, dashboard))

    def _developers_dashboard(self) -> Dashboard | None:
        """Return the dashboard from the folder in the settings, if there is one.

        Raises:
            SettingsError: the folder cannot be read.
        """
        if self.settings.ui is None or self.part != "http:0":
            return None
        from fieldbrook.gateway.http.site.dashboard import Dashboard

        return Dashboard.of(self.settings.ui)

    # ---------------------------------------------------------------- the actor

    def registry_reader(self) -> RegistryReader:
        """See `GatewayActor`."""
        return self._reader

    async def refuse_more(self) -> None:
        """Stop listening; requests that were already accepted are still answered.

        Clients of a host of a cluster connect to another host, so they need not wait here.
        """
        self._draining = True
        self._sweeper.cancel()
        for port in self._ports:
            port.listener.close(refuses=bool(self.host))

    async def close(self) -> None:
        """Write the last refused events to their store."""
        self._refusals.close()

    def project_removed(self, project_id: int) -> None:
        """Close the store of a removed project."""
        super().project_removed(project_id)
        if self._applications is not None:
            self._applications.project_removed(project_id)

    def _node_health(self) -> NodeHealth:
        news = self.health_message
        return NodeHealth(
            conditions=news.conditions,
            recent=news.recent,
            more=news.more,
            parts=news.parts,
            projects=news.projects,
            silent_s=time.monotonic() - self.pinged,
            silent_limit_s=self.settings.watchdog_s,
            registry=self._registry_failure(),
            draining=self._draining,
        )

    def _registry_failure(self) -> str:
        try:
            self._reader.version()
        except StoreError as error:
            return str(error)
        return ""

    def _warn_of_hosts(self) -> None:
        settings = self.settings
        if (
            settings.wallet_whitelist
            and not settings.wallet_domains
            and self._certificate.names is None
        ):
            log.warning(
                "wallets can sign in for any host that a request names in Host, because this node "
                "has no certificate with its names: set wallet_domains to the hosts of your pages"
            )

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            for port in self._ports:
                for way in port.ways:
                    way.fast_path.close_expired(self.loop.time())
            self._refusals.flush()
            open_now = sum(port.connections for port in self._ports)
            metrics.put(metrics.HTTP_CONNECTIONS, open_now)
            metrics.put(metrics.HTTP_CONNECTIONS_LIMIT, self._connections.limit)
            self._certificate.renew()


async def _import_the_rest() -> None:
    for name in ("server", "applications"):
        await asyncio.to_thread(importlib.import_module, f"{_TORNADO}.{name}")


@contextmanager
def _short_turns() -> Iterator[None]:
    """Shorten the turns of other threads that compute beside the event loop.

    By default, a computing thread releases the interpreter's lock to the loop after 5 ms, and the
    first event needs about ten iterations of the loop.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
