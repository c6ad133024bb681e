"""The base of all gateway actors: Thespian in the main thread, an event loop in another.

The main thread only handles control messages and is mostly idle; the loop's thread does the
work. The loop sends messages to the supervisor through `post`. Control messages reach the loop
through `call_soon_threadsafe`. When the loop ends, the process exits and the supervisor starts
another process.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fieldbrook.actors import messages as m
from fieldbrook.actors.runtime import Address, NodeActor
from fieldbrook.core.errors import (
    NodeError,
    ProjectNotFoundError,
    StoreError,
    TooManyRequestsError,
    UnavailableError,
)
from fieldbrook.core.quotas import PROCESSES
from fieldbrook.core.settings import Settings
from fieldbrook.gateway.links.project_clients import ProjectClients
from fieldbrook.observability import metrics, metrics_table, node_log, publisher_counts, spans
from fieldbrook.observability.health import ProcessHealth
from fieldbrook.storage.registry.service import RegistryReader
from fieldbrook.system.kernel import name_process

log = logging.getLogger(__name__)

DRAIN_LIMIT_S = 1.5
_EXPIRE_S = 1.0


def essential(task: asyncio.Task[None]) -> asyncio.Task[None]:
    """Mark a task as essential: if the task fails, the process exits with status 70 and the
    supervisor starts another process."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("the task %s failed", task.get_coro(), exc_info=error)
            os._exit(70)

    task.add_done_callback(ended)
    return task


class GatewayActor(NodeActor, abc.ABC):
    """Base class of the gateways: control messages, clients of projects, draining."""

    settings: Settings
    run_dir: Path
    part: str
    host: str  # the name of this host in its cluster; empty when the node runs alone
    projects: ProjectClients
    loop: asyncio.AbstractEventLoop
    health: ProcessHealth

    def __init__(self) -> None:
        super().__init__()
        self._started = False
        self.health_message = m.HealthChanged((), 0, (), {}, {})
        self.pinged = time.monotonic()
        self._drained = threading.Event()

    # Methods that each kind of gateway implements or extends.

    @abc.abstractmethod
    async def open(self) -> None:
        """Open the store, the ports and connections; runs in the loop.

        Raises:
            NodeError: the gateway cannot serve, e.g. the port is taken.
        """

    @abc.abstractmethod
    async def refuse_more(self) -> None:
        """Stop accepting events; events already accepted are still answered."""

    async def close(self) -> None:
        """Close ports and connections, after the last answer or the drain deadline."""

    @abc.abstractmethod
    def registry_reader(self) -> RegistryReader:
        """The registry reader of this process; use it only in the loop's thread."""

    def project_removed(self, project_id: int) -> None:
        """Refuse the waiting events of a removed project; runs in the loop."""
        self.projects[project_id].refuse_all(ProjectNotFoundError(project=project_id))

    # Control, in the main thread.

    def receive(self, message: object, sender: Address) -> None:
        """Handle a control message of the supervisor; see `actors.messages`."""
        match message:
            case m.Start():
                self._start(message, sender)
            case m.RouteTo(project_id=project_id, path=path, alone=alone):
                self._in_loop(lambda: self.projects[project_id].route(path, alone))
            case m.Unreachable(project_id=project_id):
                error = UnavailableError(what="the project keeps failing")
                self._in_loop(lambda: self.projects[project_id].refuse_waiting(error))
            case m.QuotaReached(project_id=project_id, limit=limit):
                crowded = TooManyRequestsError(
                    what="the project's account already runs as many projects at once as its "
                    f"quota allows ({limit}, quota {PROCESSES})"
                )
                self._in_loop(lambda: self.projects[project_id].refuse_waiting(crowded))
            case m.DropProject(project_id=project_id):
                self._in_loop(lambda: self.project_removed(project_id))
            case m.HealthChanged():
                self.health_message = message
            case m.Ping(number=number):
                self.pinged = time.monotonic()
                pong = m.Ponged(self.part, number)
                self._in_loop(lambda: self.post(pong))
            case m.Drain():
                self._in_loop(lambda: self._begin_drain())
            case _:
                self.unexpected(message, sender)

    def posted(self, message: object) -> None:
        """Forward a message that the loop posted to the supervisor."""
        self.send(self._supervisor, message)

    def stopping(self) -> None:
        """Drain before the exit, unless a drain has finished already."""
        if self._started and not self._drained.is_set():
            self._in_loop(lambda: self._begin_drain())
            self._drained.wait(DRAIN_LIMIT_S)

    def activate(self, project_id: int) -> None:
        """Ask the supervisor to start a project; see `links.route.ProjectActivator`."""
        account_id, processes = 0, None
        with contextlib.suppress(StoreError), self.registry_reader().snapshot() as registry:
            project = registry.project(project_id)
            account = None if project is None else registry.account(project.account_id)
            if account is not None:
                account_id = account.account_id
                processes = self._quotas.limit(account, PROCESSES)
        self.post(m.Activate(project_id, account_id, processes))

    def _start(self, start: m.Start, sender: Address) -> None:
        name_process(f"fb-{start.part}")
        node_log.name(start.part)
        metrics_table.attach(start.slot)
        self._supervisor = sender
        self.part, self.settings, self.run_dir = start.part, start.settings, start.run_dir
        self.host = start.host
        self._generation = start.generation
        spans.start(start.settings, start.part)
        self._quotas = start.settings.quotas
        self.health = ProcessHealth(
            lambda now: self.post(m.HealthReported(self.part, self._generation, now))
        )
        self.accept_posts()
        threading.Thread(target=self._run_loop, name="loop", daemon=True).start()

    def _in_loop(self, call: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(call)

    # The loop's thread.

    def _run_loop(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException:
            log.exception("%s: event loop failed", self.part)
        os._exit(70)

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.projects = ProjectClients(self, self.loop)
        try:
            await self.open()
        except NodeError as error:
            self.post(m.Failed(self.part, str(error)))
            await asyncio.Event().wait()  # until the supervisor ends this process
        self._started = True
        self.post(m.Ready(self.part, self._generation, os.getpid()))
        while True:
            began = self.loop.time()
            await asyncio.sleep(_EXPIRE_S)
            metrics.put(metrics.LOOP_LAG, max(0.0, self.loop.time() - began - _EXPIRE_S))
            self.projects.expire()
            self.measure()

    def measure(self) -> None:
        """Update the queue metrics and the counts of publishers; called in the loop about once a
        second."""
        self.projects.measure()
        publisher_counts.here.fold()

    def _begin_drain(self) -> None:
        self._drain_task = self.loop.create_task(self._drain())

    async def _drain(self) -> None:
        log.debug("%s: draining", self.part)
        await self.refuse_more()
        limit = self.loop.time() + DRAIN_LIMIT_S
        while not self.projects.idle and self.loop.time() < limit:
            await asyncio.sleep(0.01)
        await self.close()
        await asyncio.to_thread(spans.stop)
        await asyncio.sleep(0.02)  # let the last answers leave the process
        log.debug(
            "%s: drained, %s unsettled", self.part, "nothing" if self.projects.idle else "events"
        )
        self._drained.set()
        self.post(m.Drained())
