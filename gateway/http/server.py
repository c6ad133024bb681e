"""The HTTP gateway: events and management on one port, the dashboard on another."""

from __future__ import annotations

import asyncio
import importlib
import logging
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket
from tornado.routing import AnyMatches, Rule

from fieldbrook import __version__
from fieldbrook.actors import messages as m
from fieldbrook.actors.dry_run.runner import DryRunner, node_parts
from fieldbrook.actors.remote_path import HTTP_SOCKET
from fieldbrook.actors.wire import NODE_COMMAND, RESUME, pack
from fieldbrook.core import clock
from fieldbrook.core.clock import zone_of
from fieldbrook.core.errors import NodeError, SettingsError, StoreError
from fieldbrook.core.settings import Settings, listed
from fieldbrook.gateway.base import GatewayActor, essential
from fieldbrook.gateway.chain_client import COMMAND, TARGET, call_chain
from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.events.refusals import Refusals
from fieldbrook.gateway.events.traced import TracedEventService
from fieldbrook.gateway.http.event_handler import EventHandler
from fieldbrook.gateway.http.later import LaterApplication
from fieldbrook.gateway.http.ports import MULTIPART_SLACK, Port, Ports
from fieldbrook.gateway.http.request_log import log_request
from fieldbrook.gateway.http.request_stream import lingering
from fieldbrook.gateway.http.site.dashboard import (
    DASHBOARD_PATHS,
    Dashboard,
    DashboardHandler,
    FromOtherHost,
    OtherHostHandler,
)
from fieldbrook.gateway.http.site.documentation import PACKAGED, DocumentationHandler, Site
from fieldbrook.gateway.http.tls.bridge import EndingConnections
from fieldbrook.gateway.links.cluster_hosts import ClusterHosts
from fieldbrook.gateway.links.pending_event import Outcome
from fieldbrook.gateway.listening.connections import (
    Connections,
    connections_limit,
)
from fieldbrook.gateway.listening.sockets import bind
from fieldbrook.gateway.management.framework.open_stores import OpenStores, open_limit
from fieldbrook.gateway.management.framework.temporary_files import remove_leftovers
from fieldbrook.gateway.memory_budget import MemoryBudget, request_budget
from fieldbrook.gateway.metrics.collectors import Collector
from fieldbrook.gateway.metrics.publisher_activity import (
    PUBLISHERS,
    NodeActivity,
    answer_publishers,
    gateway_parts,
)
from fieldbrook.gateway.metrics.sampling import node_series, start_sampling
from fieldbrook.gateway.metrics.series_client import SAMPLER, SERIES, LocalSeries, RemoteSeries
from fieldbrook.gateway.mqtt.inspection import RemoteInspection
from fieldbrook.gateway.mqtt.sessions.limits import Limits as MqttLimits
from fieldbrook.gateway.mqtt.websocket import PATH as MQTT_PATH
from fieldbrook.gateway.mqtt.websocket import WEBSOCKET_SOCKET, MqttWebSocket, Relays
from fieldbrook.gateway.peers import Answer, serve_peers
from fieldbrook.gateway.pending_rows import PendingRows
from fieldbrook.gateway.registry_client import SocketRegistryClient
from fieldbrook.gateway.request_target import TargetApplication
from fieldbrook.observability import metrics, spans
from fieldbrook.observability.health import NodeHealth
from fieldbrook.security import node_secrets as keys
from fieldbrook.security import tls
from fieldbrook.security.dashboard_hosts import is_dashboard_host
from fieldbrook.security.local_certificate import local_identity
from fieldbrook.security.operator_keys import Vault
from fieldbrook.storage.chain.store import ChainStoreReader, chain_path
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.refused import read_refused
from fieldbrook.storage.project.store import store_path
from fieldbrook.storage.registry.lease import Lease
from fieldbrook.storage.registry.service import RegistryReader
from fieldbrook.storage.sql.access import database_reader
from fieldbrook.wasm.limits import Limits

if TYPE_CHECKING:
    from fieldbrook.gateway.management.framework.context import ManagementContext, SeriesReader
    from fieldbrook.gateway.management.sign_in.wallet import WalletPolicy

log = logging.getLogger(__name__)

EVENT_PATH = r"/(?:srv-applet-mgr/v0|api/w3bapp)/event/([^/]+)"
_SWEEP_S = 1.0
_TURN_S = 0.0005
_MANAGEMENT = "fieldbrook.gateway.management.application"


class HttpGateway(GatewayActor):
    """Owns the event ports and, in the first gateway process, the dashboard port."""

    async def open(self) -> None:
        """Open the registry and the ports."""
        settings = self.settings
        self._draining = False
        token_key = keys.load_or_create_key(settings.data / "secrets", "token.key")
        self._reader = RegistryReader(settings.data / "registry")
        if self.host:
            self._reader.lease = Lease(self.run_dir)
        self._chains: dict[int, ChainStoreReader] = {}
        self._stores = OpenStores(settings.data / "projects", open_limit())
        self._cluster = ClusterHosts(self.run_dir)
        self._pending = PendingRows(self.run_dir)
        registry = SocketRegistryClient(self.run_dir / "registry")
        self._refusals = Refusals(settings.data, self.part, "http")
        events = (EventService if spans.here is None else TracedEventService)(
            self._reader,
            registry,
            token_key,
            self.projects,
            __version__,
            settings.body_limit_bytes,
            self._refusals,
            host=self.host,
        )
        every = [f"http:{number}" for number in range(settings.http_processes)]
        if removed := remove_leftovers(settings.data / "uploads", self.part, every):
            log.info("removed %d uploads of requests that a killed gateway left", removed)
        memory_budget = request_budget(settings.upload_limit_bytes + MULTIPART_SLACK)
        await self._start_peers()
        self._identity = tls.identity_of(settings)
        self._relays = Relays(tls=self._identity is not None)
        managing, alone = LaterApplication(), LaterApplication()
        application = self._application(events, memory_budget, managing)
        self._tls = None if self._identity is None else tls.server_context(self._identity)
        self._names = None if self._identity is None else tls.names_in(self._identity.certificate)
        self._certificate_watch = (
            None if self._identity is None else tls.CertificateWatch(self._identity)
        )
        shared, slot = settings.http_processes > 1, every.index(self.part)
        at = bind(settings.bind, settings.http_port, shared=shared, slot=slot)
        self._connections = Connections(
            connections_limit(tls=self._tls is not None),
            metrics.HTTP_CONNECTIONS_EVICTED,
            lingering,
        )
        self._connections.ports.append(self._relays)
        if self._tls is not None or self.part == "http:0":
            self._connections.ports.append(EndingConnections())
        ports = Ports(settings, events, memory_budget, self._connections)
        self._ports: list[Port] = [ports.open(at, application, self._tls)]
        if settings.event_port is not None:
            events_alone = self._application(events, memory_budget, alone)
            at = bind(settings.bind, settings.event_port, shared=shared, slot=slot)
            self._ports.append(ports.open(at, events_alone, self._tls))
        later = [self._manage(registry, token_key, memory_budget, managing, alone)]
        if self.part == "http:0":
            # A developer's folder that cannot be read is told before the node has started.
            dashboard = None if settings.ui is None else Dashboard.of(settings.ui)
            later.append(self._open_dashboard(ports, application, dashboard))
            self._warn_of_hosts()
            self._connections.announce()
            if self._cluster.is_member:
                self._serve_hosts(application)
        self._sweeper = essential(self.loop.create_task(self._sweep()))
        self._completing = essential(self.loop.create_task(_complete(later)))

    async def _manage(
        self,
        registry: SocketRegistryClient,
        token_key: bytes,
        memory_budget: MemoryBudget,
        managing: LaterApplication,
        alone: LaterApplication,
    ) -> None:
        """Make the management interface, which no event needs: its import is a fifth of a start."""
        await asyncio.to_thread(importlib.import_module, _MANAGEMENT)
        from fieldbrook.gateway.management.application import make_application_routes

        context = self._context(registry, token_key, memory_budget)
        for later, management in ((managing, True), (alone, False)):
            routes = make_application_routes(context, management=management)
            later.set(web.Application(routes, log_function=log_request))

    async def _open_dashboard(
        self, ports: Ports, application: web.Application, dashboard: Dashboard | None
    ) -> None:
        """Open the dashboard port; a client that connects before waits in the port's queue.

        No event needs it, and its files and its certificate take as long as the rest of a start.
        """
        settings = self.settings
        try:
            context = await asyncio.to_thread(self._dashboard_tls)
            if dashboard is None:
                dashboard = await asyncio.to_thread(Dashboard.of, None)
            if self._draining:
                return
            at = bind(settings.dashboard_bind, settings.dashboard_port, shared=False)
        except SettingsError as error:
            self.post(m.Failed(self.part, str(error)))
            return
        pages = with_pages(application, dashboard, self._is_dashboard_host)
        self._ports.append(ports.open(at, pages, context, settings.plain_dashboard))

    def _serve_hosts(self, application: web.Application) -> None:
        """Take requests that other hosts of the cluster pass on."""
        self._from_hosts = HTTPServer(application, max_body_size=self.settings.upload_limit_bytes)
        socket = bind_unix_socket(str(self.run_dir / HTTP_SOCKET), mode=0o600)
        self._from_hosts.add_socket(socket)

    async def _start_peers(self) -> None:
        """Sample the metrics in `SAMPLER`, and answer the other processes' questions."""
        self._series: SeriesReader = RemoteSeries(self.run_dir)
        answers: dict[str, Answer] = {PUBLISHERS: answer_publishers}
        if self.part == SAMPLER:
            series = node_series(self._reader)
            self._sampling = start_sampling(series)
            self._series = local = LocalSeries(series)
            answers[SERIES] = local.answer
        self._peers = await serve_peers(self.run_dir, self.part, answers)

    def registry_reader(self) -> RegistryReader:
        """See `GatewayActor`."""
        return self._reader

    async def refuse_more(self) -> None:
        """Stop listening; requests that were already accepted are still answered."""
        self._draining = True
        self._sweeper.cancel()
        for port in self._ports:
            port.listener.close()
            for way in port.ways:
                way.server.stop()

    async def close(self) -> None:
        """Write the last refused events to their store."""
        self._refusals.close()

    def _store_of(self, project_id: int) -> ProjectStoreReader | None:
        """The store of a project; see `ManagementContext`.

        Raises:
            OwnedElsewhereError: another host of the cluster owns the project.
        """
        self._cluster.require_here(project_id)
        return self._stores.get(project_id)

    async def _flush(self, project_id: int) -> None:
        """Ask a project for a checkpoint; see `ManagementContext`."""
        if self._cluster.is_member:
            self._cluster.require_here(project_id)
            if project_id not in self.projects.routed:
                # This host's copy of the store may lie behind until it takes the project over.
                await self._command(project_id, RESUME, [])
                self._stores.drop(project_id)
        await self._pending.flush(project_id)

    async def _command(self, project_id: int, name: str, payload: list[Any]) -> Outcome:
        """Send a node command to a project, as an event without a publisher."""
        done: asyncio.Future[Outcome] = self.loop.create_future()
        event = name, NODE_COMMAND, "", pack(payload), clock.now_ms(), 0, ""
        self.projects[project_id].submit(event, done.set_result)
        return await done

    async def _chain_command(self, chain_id: int, command: str, target: int) -> None:
        """Send a command to the process of a chain."""
        await call_chain(self.run_dir, chain_id, {COMMAND: command, TARGET: target})

    def _dashboard_tls(self) -> ssl.SSLContext | None:
        """The TLS of the dashboard port: with the configured certificate, else with the node's own
        for this machine."""
        if self._tls is not None:
            return self._tls
        try:
            return tls.server_context(local_identity(self.settings.data / "secrets"))
        except NodeError as error:
            # http works without it.
            log.warning("the dashboard is not served over https: %s", error)
            return None

    def _context(
        self, registry: SocketRegistryClient, token_key: bytes, memory_budget: MemoryBudget
    ) -> ManagementContext:
        from fieldbrook.gateway.management.framework.context import ManagementContext
        from fieldbrook.gateway.management.sign_in.contract_wallet import ContractWallets

        settings = self.settings
        pending = self._pending
        return ManagementContext(
            reader=self._reader,
            registry=registry,
            token_key=token_key,
            vault=Vault(keys.load_or_create_key(settings.data / "secrets", "operator.key")),
            upload_limit_bytes=settings.upload_limit_bytes,
            token_lifetime_s=settings.token_lifetime_s,
            modules_dir=settings.data / "modules",
            uploads_dir=settings.data / "uploads",
            part=self.part,
            flush_project=self._flush,
            flush_followed=pending.flush_followed,
            trace_state=pending.trace_state,
            setup_code=lambda: keys.setup_code(settings.data / "secrets"),
            version=__version__,
            health=self._node_health,
            store_reader=self._store_of,
            cluster=self._cluster,
            dry_runner=DryRunner(node_parts(settings)),
            database_reader=lambda project_id, config: database_reader(
                settings, store_path(settings.data / "projects", project_id), config
            ),
            limits=Limits(
                deadline_ms=settings.deadline_ms, memory_bytes=settings.memory_limit_bytes
            ),
            command=self._command,
            refused=partial(read_refused, settings.data),
            chains=settings.chains,
            chain_command=self._chain_command,
            chain_reader=self._chain_reader,
            wallets=wallet_policy(settings),
            contract_wallets=ContractWallets(self.run_dir, settings.contract_wallet_chain),
            is_own_host=self._is_own_host,
            cron_jobs_limit=settings.cron_jobs_limit,
            applet_versions_kept=settings.applet_versions_kept,
            quotas=settings.quotas,
            running=lambda: self.projects.routed,
            disk_reserve_bytes=settings.disk_reserve_bytes,
            projects_dir=settings.data / "projects",
            project_map_bytes=settings.project_map_bytes,
            cron_zone=zone_of(settings.cron_timezone),
            memory_budget=memory_budget,
            mqtt=None if settings.mqtt_broker else RemoteInspection(self.run_dir),
            metrics=settings.metrics,
            collect_metrics=Collector(
                settings, self._reader, self._chain_reader, self._cluster.facts
            ),
            settings=settings,
            series=self._series,
            publisher_activity=NodeActivity(
                self.run_dir, self.part, gateway_parts(settings.http_processes)
            ).read,
        )

    def _application(
        self, events: EventService, memory_budget: MemoryBudget, others: LaterApplication
    ) -> web.Application:
        """The application of a port: events, MQTT over WebSocket, and `others` for all else."""
        limit = self.settings.body_limit_bytes
        arguments = {
            "events": events,
            "body_limit_bytes": limit,
            "memory_budget": memory_budget,
        }
        return TargetApplication(
            [
                (EVENT_PATH, EventHandler, arguments),
                *self._mqtt_routes(),
                Rule(AnyMatches(), others),
            ],
            log_function=log_request,
        )

    def _mqtt_routes(self) -> list[Any]:
        """MQTT over WebSocket; with an external broker, that broker has its own."""
        settings = self.settings
        if settings.mqtt_broker is not None:
            return []
        limits = MqttLimits.of(settings)
        arguments = {
            "path": self.run_dir / WEBSOCKET_SOCKET,
            "message_limit_bytes": limits.packet_bytes,
            "incomplete": limits.shared(request_budget(limits.packet_bytes).limit),
            "relays": self._relays,
        }
        return [(MQTT_PATH, MqttWebSocket, arguments)]

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

    def project_removed(self, project_id: int) -> None:
        """Close the store of a removed project."""
        super().project_removed(project_id)
        self._stores.drop(project_id)

    def _is_own_host(self, host: str) -> bool:
        """Whether a host can be this node; without a certificate every host can."""
        return self._names is None or tls.covers(self._names, host)

    def _is_dashboard_host(self, header: str) -> bool:
        """Whether a browser may use this `Host` for the dashboard."""
        names = listed(self.settings.dashboard_hosts) or self._names or ()
        public = urlsplit(self.settings.public_url or "").hostname
        return is_dashboard_host(header, [*names, public] if public else names)

    def _chain_reader(self, chain_id: int) -> ChainStoreReader | None:
        store = self._chains.get(chain_id)
        if store is None:
            path = chain_path(self.settings.data / "chains", chain_id)
            store = ChainStoreReader.open_if_exists(path)
            if store is not None:
                self._chains[chain_id] = store
        return store

    def _warn_of_hosts(self) -> None:
        settings = self.settings
        if settings.wallet_whitelist and not settings.wallet_domains and self._names is None:
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
            self._renew()

    def _renew(self) -> None:
        """Serve a renewed certificate from the next connection on."""
        if self._certificate_watch is None or not self._certificate_watch.has_changed():
            return
        assert self._tls is not None
        assert self._identity is not None
        try:
            names = tls.names_in(self._identity.certificate)
            tls.load(self._tls, self._identity)
        except SettingsError as error:
            log.warning(
                "cannot load the renewed certificate, the previous one stays in use: %s", error
            )
        else:
            self._names = names
            log.info("the renewed certificate %s is now in use", self._identity.certificate)


async def _complete(parts: Iterable[Awaitable[None]]) -> None:
    """Await what follows the opening of the ports of events.

    Most of it computes in other threads. By default, each gives the interpreter to the event loop
    after 5 ms, and the first event needs some ten turns of the loop.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        await asyncio.gather(*parts)
    finally:
        sys.setswitchinterval(before)


def with_pages(
    application: web.Application, dashboard: Dashboard, is_dashboard_host: Callable[[str], bool]
) -> web.Application:
    """The application of the dashboard port: dashboard, documentation, and all of `application`.

    Args:
        application: serves all other paths.
        dashboard: its page and files.
        is_dashboard_host: whether a browser may use a `Host` for the dashboard.
    """
    arguments = {"dashboard": dashboard, "is_dashboard_host": is_dashboard_host}
    rules: list[Any] = [
        (r"/docs(?:/(.*))?", DocumentationHandler, {"site": Site(PACKAGED)}),
        (DASHBOARD_PATHS, DashboardHandler, arguments),
        (FromOtherHost(is_dashboard_host), OtherHostHandler),
        (r".*", application),
    ]
    return TargetApplication(rules, log_function=log_request)


def wallet_policy(settings: Settings) -> WalletPolicy:
    """Build the wallet policy from the settings."""
    from fieldbrook.gateway.management.sign_in.wallet import WalletPolicy

    return WalletPolicy(
        domains=frozenset(listed(settings.wallet_domains)),
        whitelist=frozenset(listed(settings.wallet_whitelist)),
        nonce_required=settings.wallet_nonce_required,
    )
