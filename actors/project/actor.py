"""The actor of one project: it owns the strategies, the instance pool and the store.

Its main thread is Thespian's and idles; one data thread serves the gateways' frames (see
`actors.project.execution.executor`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

from fieldbrook.actors import messages as m
from fieldbrook.actors.project.chains import ChainName, ProjectChains
from fieldbrook.actors.project.execution.executor import ProjectExecutor
from fieldbrook.actors.project.pool import InstancePool
from fieldbrook.actors.project.shard import Setup
from fieldbrook.actors.project.shards import Shards
from fieldbrook.actors.runtime import Address, NodeActor
from fieldbrook.actors.wire import FrameServer, project_socket
from fieldbrook.core.errors import NodeError
from fieldbrook.core.settings import Settings
from fieldbrook.observability import metrics_table, node_log
from fieldbrook.observability.health import ProcessHealth
from fieldbrook.storage.project.history.tables import HistoryLimits
from fieldbrook.storage.project.store import ProjectStore, store_path
from fieldbrook.storage.registry.service import RegistryReader
from fieldbrook.storage.sql.access import database_access
from fieldbrook.system.process import name_process
from fieldbrook.wasm.limits import Limits

log = logging.getLogger(__name__)

_TICK_S = 0.25


_YIELDS_AFTER_S = 2.0  # idle time after which it yields to a waiting project of the account


class ProjectActor(NodeActor):
    """Owns one project: its strategies, its instance pool, its store."""

    def __init__(self) -> None:
        super().__init__()
        self._server: FrameServer | None = None
        self._executor: ProjectExecutor | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._pool: InstancePool | None = None
        self._idle_s = 0.0

    def receive(self, message: object, sender: Address) -> None:
        """See `actors.messages`."""
        match message:
            case m.Prepare(settings=settings):
                name_process("fb-spare")
                node_log.name("spare")
                self._pool = _make_pool(settings)
            case m.Start():
                self._start(message, sender)
            case m.Ping(number=number):
                activity = self._executor.activity.current() if self._executor else (0.0, "", 0.0)
                self.send(sender, m.Ponged(self._part, number, *activity))
            case m.YieldProcess():
                self._idle_s = min(self._idle_s, _YIELDS_AFTER_S)
            case m.Retire():
                if self._server:
                    self._server.retire()
            case _:
                self.unexpected(message, sender)

    def posted(self, message: object) -> None:
        """Pass a message of the data thread on to the supervisor."""
        self.send(self._supervisor, message)

    def stopping(self) -> None:
        """Finish the current requests, then close the store; wait at most 5 s."""
        self._stopping = True
        if self._server and self._thread and self._thread.is_alive():
            self._server.stop()
            self._thread.join(5)

    def _start(self, start: m.Start, sender: Address) -> None:
        name_process("fb-project")
        node_log.name(start.part)
        metrics_table.attach(start.slot)
        self._part = start.part
        self._supervisor = sender
        self._project_id = int(start.part.removeprefix("project:"))
        self._generation = start.generation
        self._idle_s = float(start.settings.project_idle_s)
        try:
            self._open(start.settings, start.run_dir)
        except NodeError as error:
            self.send(sender, m.Failed(start.part, str(error)))
            return
        self.accept_posts()
        self._thread = threading.Thread(target=self._serve, name="data", daemon=True)
        self._thread.start()
        ready = m.Ready(start.part, start.generation, os.getpid(), str(self._path))
        self.send(sender, ready)
        assert self._executor is not None
        self._executor.outbox.announce()

    def _open(self, settings: Settings, run_dir: Path) -> None:
        data = settings.data
        folder = store_path(data / "projects", self._project_id)
        database = database_access(settings, folder, self._project_id)
        self._store = ProjectStore(
            folder,
            settings.project_map_bytes,
            database.committed,
            HistoryLimits(settings.history_bytes, settings.replayable_bytes),
        )
        self._pool = self._pool or _make_pool(settings)
        self._shards = _make_shards(settings, self._store)
        reader = RegistryReader(data / "registry")
        chains = [ChainName(chain.id, chain.name) for chain in settings.chains]
        self._executor = ProjectExecutor(
            self._project_id,
            reader,
            self._store,
            self._pool,
            settings.api_host_list,
            lambda consumer: self.post(
                m.OutboxFilled(self._project_id, self._generation, consumer)
            ),
            database.open,
            ProjectChains(
                self._project_id, chains, run_dir, self._store.leases, settings.default_chain
            )
            if chains
            else None,
            ProcessHealth(
                lambda now: self.post(m.HealthReported(self._part, self._generation, now))
            ),
            prover=settings.prover_url is not None,
            shards=self._shards,
        )
        self._executor.refresh()
        self._path = project_socket(run_dir, self._project_id, self._generation)
        self._server = FrameServer(self._path, self._executor.on_requests, self._on_quiet, _TICK_S)

    def _serve(self) -> None:
        assert self._server is not None
        assert self._executor is not None
        assert self._pool is not None
        try:
            self._server.serve()
            if self._shards is not None:
                self._shards.close()
            self._pool.close()
            self._executor.close_database()
            self._store.close()
        except BaseException:
            # Without its data thread the process is useless: exit, and be started again.
            log.exception("%s: data thread failed", self._part)
            os._exit(70)
        if not self._stopping:
            os._exit(0)  # retired: the actor itself got no request to exit

    def _on_quiet(self) -> None:
        assert self._executor is not None
        self._executor.on_quiet()
        if len(self._store.outbox) or self._executor.health.has_conditions:
            return  # the process that raised a health condition has to clear it
        if self._executor.trace_state is not None and self._idle_s > _YIELDS_AFTER_S:
            return  # the trace would end with the process
        if time.monotonic() - self._executor.last_event >= self._idle_s:
            self._executor.last_event = time.monotonic()
            self.post(m.Idle(self._project_id, self._generation))


def _limits(settings: Settings) -> Limits:
    return Limits(deadline_ms=settings.deadline_ms, memory_bytes=settings.memory_limit_bytes)


def _make_pool(settings: Settings) -> InstancePool:
    return InstancePool(settings.data / "modules", _limits(settings))


def _make_shards(settings: Settings, store: ProjectStore) -> Shards | None:
    if not settings.shard_processes:
        return None
    setup = Setup(
        store=str(store.path),
        modules=str(settings.data / "modules"),
        registry=str(settings.data / "registry"),
        api_hosts=settings.api_host_list,
        limits=_limits(settings),
        log_level=settings.log_level,
        log_format=settings.log_format,
    )
    return Shards(settings.shard_processes, setup, store)
