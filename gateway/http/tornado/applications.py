"""The Tornado applications of the ports: management, pages, WebSockets, and unusual event requests.

Plain events of devices do not need this module. Its import takes as long as everything else that a
gateway does before it serves events, so the gateway imports it after its event ports are open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

from fieldbrook import __version__
from fieldbrook.actors.dry_run.runner import DryRunner, node_parts
from fieldbrook.actors.remote_path import HTTP_SOCKET
from fieldbrook.actors.wire import NODE_COMMAND, RESUME, pack
from fieldbrook.core import clock
from fieldbrook.core.clock import zone_of
from fieldbrook.core.errors import NodeError, UnavailableError
from fieldbrook.core.settings import Settings, listed
from fieldbrook.gateway.chain_client import COMMAND, TARGET, call_chain
from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.http.site.dashboard import (
    DASHBOARD_PATHS,
    Dashboard,
    DashboardHandler,
    FromOtherHost,
    OtherHostHandler,
)
from fieldbrook.gateway.http.site.documentation import PACKAGED, DocumentationHandler, Site
from fieldbrook.gateway.http.tls.certificate import Certificate
from fieldbrook.gateway.http.tornado.event_handler import EventHandler
from fieldbrook.gateway.http.tornado.request_log import log_request
from fieldbrook.gateway.links.cluster_hosts import ClusterHosts
from fieldbrook.gateway.links.pending_event import Outcome
from fieldbrook.gateway.links.project_clients import ProjectClients
from fieldbrook.gateway.listening.proxies import Proxies
from fieldbrook.gateway.management.application import make_application_routes
from fieldbrook.gateway.management.framework.context import ManagementContext, SeriesReader
from fieldbrook.gateway.management.framework.open_stores import OpenStores, open_limit
from fieldbrook.gateway.management.framework.temporary_files import remove_leftovers
from fieldbrook.gateway.management.sign_in.contract_wallet import ContractWallets
from fieldbrook.gateway.management.sign_in.wallet import WalletPolicy
from fieldbrook.gateway.memory_budget import Shared
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
from fieldbrook.observability.health import NodeHealth
from fieldbrook.security import node_secrets as keys
from fieldbrook.security.operator_keys import Vault
from fieldbrook.storage.chain.store import ChainStoreReader, chain_path
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.refused import read_refused
from fieldbrook.storage.project.store import store_path
from fieldbrook.storage.registry.service import RegistryReader
from fieldbrook.storage.sql.access import database_reader
from fieldbrook.wasm.limits import Limits

log = logging.getLogger(__name__)

EVENT_PATH = r"/(?:srv-applet-mgr/v0|api/w3bapp)/event/([^/]+)"


class Applications:
    """Makes the applications of one gateway process, and holds the objects that they share."""

    def __init__(
        self,
        settings: Settings,
        part: str,
        run_dir: Path,
        *,
        events: EventService,
        projects: ProjectClients,
        reader: RegistryReader,
        registry: SocketRegistryClient,
        token_key: bytes,
        memory_budget: Shared,
        certificate: Certificate,
        health: Callable[[], NodeHealth],
    ) -> None:
        """Create what all applications share.

        Args:
            settings: the node's settings.
            part: the name of the process, e.g. "http:0".
            run_dir: the folder of the sockets between the processes.
            events: receives events.
            projects: the clients of the projects.
            reader: reads the registry.
            registry: changes the registry.
            token_key: the key of the tokens.
            memory_budget: the memory budget for partially received requests.
            certificate: the certificate of the ports.
            health: returns the health of the node.
        """
        self._settings, self._part, self._run_dir = settings, part, run_dir
        self._events, self._projects = events, projects
        self._memory_budget = memory_budget
        self._certificate = certificate
        self._chains: dict[int, ChainStoreReader] = {}
        self._stores = OpenStores(settings.data / "projects", open_limit())
        self._cluster = ClusterHosts(run_dir)
        self._pending = PendingRows(run_dir)
        self._series: SeriesReader = RemoteSeries(run_dir)
        self._answers: dict[str, Answer] = {PUBLISHERS: answer_publishers}
        if part == SAMPLER:
            series = node_series(reader)
            self._sampling = start_sampling(series)
            self._series = local = LocalSeries(series)
            self._answers[SERIES] = local.answer
        self.relays = Relays(tls=certificate.context is not None)
        self._context = self._make_context(reader, registry, token_key, health)

    async def start(self) -> None:
        """Remove files that a killed process left, and begin to answer requests of other
        processes."""
        settings = self._settings
        every = [f"http:{number}" for number in range(settings.http_processes)]
        if removed := remove_leftovers(settings.data / "uploads", self._part, every):
            log.info("removed %d uploads of requests that a killed gateway left", removed)
        self._peers = await serve_peers(self._run_dir, self._part, self._answers)

    def make(self, *, management: bool) -> web.Application:
        """Make the application of a port.

        Args:
            management: whether it serves management, and not only events and their metrics.
        """
        arguments = {
            "events": self._events,
            "body_limit_bytes": self._settings.body_limit_bytes,
            "memory_budget": self._memory_budget,
        }
        application = TargetApplication(
            [
                (EVENT_PATH, EventHandler, arguments),
                *self._mqtt_routes(),
                *make_application_routes(self._context, management=management),
            ],
            log_function=log_request,
        )
        application.proxies = Proxies(self._settings.trusted_proxies)
        return application

    def with_pages(self, application: web.Application, dashboard: Dashboard) -> web.Application:
        """Make the application of the dashboard port: dashboard, documentation, and all of
        `application`."""
        is_dashboard_host = self._certificate.is_dashboard_host
        arguments = {"dashboard": dashboard, "is_dashboard_host": is_dashboard_host}
        rules: list[Any] = [
            (r"/docs(?:/(.*))?", DocumentationHandler, {"site": Site(PACKAGED)}),
            (DASHBOARD_PATHS, DashboardHandler, arguments),
            (FromOtherHost(is_dashboard_host), OtherHostHandler),
            (r".*", application),
        ]
        return TargetApplication(rules, log_function=log_request)

    def serve_hosts(self, application: web.Application) -> None:
        """Accept requests that other hosts of the cluster forward, if the node belongs to a
        cluster."""
        if not self._cluster.is_member:
            return
        self._from_hosts = HTTPServer(application, max_body_size=self._settings.upload_limit_bytes)
        socket = bind_unix_socket(str(self._run_dir / HTTP_SOCKET), mode=0o600)
        self._from_hosts.add_socket(socket)

    def project_removed(self, project_id: int) -> None:
        """Close the store of a removed project."""
        self._stores.drop(project_id)

    # ---------------------------------------------------------------- management

    def _make_context(
        self,
        reader: RegistryReader,
        registry: SocketRegistryClient,
        token_key: bytes,
        health: Callable[[], NodeHealth],
    ) -> ManagementContext:
        settings, pending = self._settings, self._pending
        return ManagementContext(
            reader=reader,
            registry=registry,
            token_key=token_key,
            vault=Vault(keys.load_or_create_key(settings.data / "secrets", "operator.key")),
            upload_limit_bytes=settings.upload_limit_bytes,
            token_lifetime_s=settings.token_lifetime_s,
            modules_dir=settings.data / "modules",
            uploads_dir=settings.data / "uploads",
            part=self._part,
            flush_project=self._flush,
            flush_followed=pending.flush_followed,
            trace_state=pending.trace_state,
            setup_code=lambda: keys.setup_code(settings.data / "secrets"),
            version=__version__,
            health=health,
            store_reader=self._store_of,
            cluster=self._cluster,
            dry_runner=DryRunner(node_parts(settings)),
            put_store=self._put_store,
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
            contract_wallets=ContractWallets(self._run_dir, settings.contract_wallet_chain),
            is_own_host=self._certificate.is_own_host,
            cron_jobs_limit=settings.cron_jobs_limit,
            applet_versions_kept=settings.applet_versions_kept,
            quotas=settings.quotas,
            running=lambda: self._projects.routed,
            disk_reserve_bytes=settings.disk_reserve_bytes,
            projects_dir=settings.data / "projects",
            project_map_bytes=settings.project_map_bytes,
            cron_zone=zone_of(settings.cron_timezone),
            memory_budget=self._memory_budget,
            mqtt=None if settings.mqtt_broker else RemoteInspection(self._run_dir),
            metrics=settings.metrics,
            collect_metrics=Collector(settings, reader, self._chain_reader, self._cluster.facts),
            settings=settings,
            series=self._series,
            publisher_activity=NodeActivity(
                self._run_dir, self._part, gateway_parts(settings.http_processes)
            ).read,
        )

    def _store_of(self, project_id: int) -> ProjectStoreReader | None:
        """Return the store of a project; see `ManagementContext`.

        Raises:
            OwnedElsewhereError: another host of the cluster owns the project.
        """
        self._cluster.require_here(project_id)
        return self._stores.get(project_id)

    def _put_store(self, project_id: int) -> None:
        """Give the store of a project to all hosts; see `ManagementContext`.

        Raises:
            StoreError: the store cannot be read, or the cluster does not take it.
        """
        known = self._cluster.known()
        if known is None or not known.owners:
            return
        # Imported here, so that a node in no cluster does not load the client of its engine.
        from fieldbrook.actors.seeding import put_store
        from fieldbrook.storage.replication.connection import Connection
        from fieldbrook.storage.replication.endpoint import endpoint_in

        data = self._settings.data
        connection = Connection(endpoint_in(self._run_dir), f"{self._part} import")
        try:
            folder = store_path(data / "projects", project_id)
            put_store(connection, known.me, project_id, folder, data / "uploads")
        finally:
            connection.close()

    async def _flush(self, project_id: int) -> None:
        """Ask a project for a checkpoint; see `ManagementContext`.

        On a host of a cluster, the project is started if it does not run: this host's copy of the
        store may be outdated until the host takes the project over.

        Raises:
            OwnedElsewhereError: another host of the cluster owns the project.
            NodeError: the host of a cluster cannot start the project, or it does not answer.
        """
        if not self._cluster.is_member:
            await self._pending.flush(project_id)
            return
        self._cluster.require_here(project_id)
        if project_id in self._projects.routed and await self._pending.flush(project_id):
            return
        opened = await self._command(project_id, RESUME, [])
        if isinstance(opened, NodeError):
            raise opened
        self._stores.drop(project_id)
        if not await self._pending.flush(project_id):
            raise UnavailableError(what=f"project {project_id} is busy")

    async def _command(self, project_id: int, name: str, payload: list[Any]) -> Outcome:
        """Send a node command to a project, as an event without a publisher."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        event = name, NODE_COMMAND, "", pack(payload), clock.now_ms(), 0, ""
        self._projects[project_id].submit(event, done.set_result)
        return await done

    async def _chain_command(self, chain_id: int, command: str, target: int) -> None:
        """Send a command to the process of a chain."""
        await call_chain(self._run_dir, chain_id, {COMMAND: command, TARGET: target})

    def _chain_reader(self, chain_id: int) -> ChainStoreReader | None:
        store = self._chains.get(chain_id)
        if store is None:
            path = chain_path(self._settings.data / "chains", chain_id)
            store = ChainStoreReader.open_if_exists(path)
            if store is not None:
                self._chains[chain_id] = store
        return store

    # ---------------------------------------------------------------- MQTT

    def _mqtt_routes(self) -> list[Any]:
        """Return the routes of MQTT over WebSocket; there are none with an external broker, which
        serves these itself."""
        settings = self._settings
        if settings.mqtt_broker is not None:
            return []
        limits = MqttLimits.of(settings)
        arguments = {
            "path": self._run_dir / WEBSOCKET_SOCKET,
            "message_limit_bytes": limits.packet_bytes,
            "incomplete": limits.incomplete(),
            "relays": self.relays,
        }
        return [(MQTT_PATH, MqttWebSocket, arguments)]


def wallet_policy(settings: Settings) -> WalletPolicy:
    """Build the wallet policy from the settings."""
    return WalletPolicy(
        domains=frozenset(listed(settings.wallet_domains)),
        whitelist=frozenset(listed(settings.wallet_whitelist)),
        nonce_required=settings.wallet_nonce_required,
    )
