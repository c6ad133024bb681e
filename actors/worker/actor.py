"""The actor of a worker: a process that runs the actors of many projects.

Thespian uses the main thread, which is mostly idle; the runners' threads serve the frames of
gateways.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from fieldbrook.actors import messages as m
from fieldbrook.actors.frame_server import FrameServer
from fieldbrook.actors.project.actor import ProjectActor, WorkerContext
from fieldbrook.actors.project.look_ahead.threads import LookAheadThreads
from fieldbrook.actors.replicated_journal import ReplicatedJournal
from fieldbrook.actors.runtime import Address, NodeActor
from fieldbrook.actors.shared_journal import ProjectRecords, SharedJournal, WorkerJournal
from fieldbrook.actors.wire import worker_socket
from fieldbrook.actors.worker.core import WorkerCore
from fieldbrook.actors.worker.journal import open_journal, recover_other
from fieldbrook.actors.worker.runners import Runners
from fieldbrook.core.errors import JournalDamagedError, NodeError
from fieldbrook.observability import metrics_table, node_log, spans
from fieldbrook.observability.health import UNREADABLE, ProcessHealth
from fieldbrook.storage.registry.service import RegistryReader
from fieldbrook.storage.replication.endpoint import endpoint_in
from fieldbrook.system.kernel import map_large_blocks, name_process
from fieldbrook.wasm.engine.engine import make_engine, start_ticker
from fieldbrook.wasm.limits import Limits

log = logging.getLogger(__name__)

STOP_LIMIT_S = 10.0
SLOTS = 1_024  # for the runs of all threads, and the instances that applets keep


class WorkerActor(NodeActor):
    """Runs and supervises project actors; the supervisor places them."""

    def __init__(self) -> None:
        super().__init__()
        self._runners: Runners | None = None
        self._part = ""
        self._here: set[str] = set()  # projects (`project:ID`) whose stores may be open here
        # Messages that wait while another worker's journal is read; None at other times.
        self._held: list[m.RunProject] | None = None

    def receive(self, message: object, sender: Address) -> None:
        """See `actors.messages`."""
        match message:
            case m.Start():
                self._start(message, sender)
            case m.RunProject() if self._held is not None:
                self._held.append(message)
            case m.RunProject():
                self._run_project(message)
            case m.RecoverJournal(name=name):
                self._recover(name)
            case m.Retire(project_id=project_id):
                self._call(lambda: self._core.retire(project_id))
            case m.YieldProcess(project_id=project_id):
                self._call(lambda: self._core.yield_process(project_id))
            case m.Ping(number=number):
                current = self._runners.current() if self._runners else (0.0, "", 0.0, 0)
                self.send(sender, m.Ponged(self._part, number, *current))
            case _:
                self.unexpected(message, sender)

    def posted(self, message: object) -> None:
        """Forward a message of another thread to the supervisor."""
        match message:
            case m.ProjectEnded(part=part) | m.Failed(part=part):
                self._here.discard(part)
            case m.JournalRecovered():
                held, self._held = self._held or [], None
                for order in held:
                    self._run_project(order)
        self.send(self._supervisor, message)

    def stopping(self) -> None:
        """Finish the current turns, and close all stores."""
        if self._runners is not None:
            if self._runners.stop(STOP_LIMIT_S):
                self._journal.close()  # it is empty if all stores could be written
            self._context.look_ahead_threads.close()
        spans.stop()

    def _start(self, start: m.Start, sender: Address) -> None:
        name = start.part.removeprefix("worker:")
        name_process(f"fb-{start.part}")
        map_large_blocks()
        node_log.name(start.part)
        metrics_table.attach(start.slot)
        spans.start(start.settings, start.part)
        self._part, self._supervisor = start.part, sender
        self.accept_posts()
        path = worker_socket(start.run_dir, name, start.generation)
        try:
            damaged = self._open(start, name, path)
        except NodeError as error:
            self.send(sender, m.Failed(start.part, str(error)))
            return
        assert self._runners is not None
        self._runners.start()
        self.send(sender, m.Ready(start.part, start.generation, os.getpid(), str(path)))
        if damaged:
            health = ProcessHealth(
                lambda now: self.send(sender, m.HealthReported(start.part, start.generation, now))
            )
            health.raise_(UNREADABLE, "; ".join(map(str, damaged)))

    def _open(self, start: m.Start, name: str, path: Path) -> list[JournalDamagedError]:
        settings, run_dir = start.settings, start.run_dir
        reader = RegistryReader(settings.data / "registry")
        is_boot = start.generation == 1  # later generations start while other workers run projects
        opened, damaged = open_journal(settings, reader, name, is_boot=is_boot)
        journal: WorkerJournal = SharedJournal(opened)
        if start.host:
            # The stores have all batches of the files. From now on the streams store the batches.
            opened.close()
            endpoint = endpoint_in(run_dir)
            journal = ReplicatedJournal(endpoint, start.host, start.part, self._on_settled)
        limits = Limits(deadline_ms=settings.deadline_ms, memory_bytes=settings.memory_limit_bytes)
        threads = LookAheadThreads(settings.look_ahead_threads)
        engine = make_engine(limits, SLOTS)
        start_ticker(engine)
        self._context = WorkerContext(settings, run_dir, reader, engine, threads, self.post)
        self._core = WorkerCore(journal, self.post)
        self._journal = journal
        self._server = FrameServer(path)
        for old in start.run_dir.glob(f"w{name}.*"):
            if old != path:  # the socket of a killed worker, whose journal is read by now
                old.unlink(missing_ok=True)
        self._runners = Runners(self._core, self._server)
        return damaged

    def _on_settled(self, records: ProjectRecords, error: NodeError | None) -> None:
        """End a commit: the hosts of the cluster have stored the records, or `error` says why
        not."""
        self._core.settled(records, error)
        self._server.wake()

    def _recover(self, name: str) -> None:
        """Read the journal of another worker, in a thread.

        Projects that should start meanwhile wait, because the recovery may have their stores open.
        """
        if self._held is not None:
            return  # the answer to the earlier request is enough
        self._held = []
        here = {int(part.removeprefix("project:")) for part in self._here}
        threading.Thread(target=self._read_journal, args=(name, here), daemon=True).start()

    def _read_journal(self, name: str, here: Collection[int]) -> None:
        reason = ""
        try:
            recover_other(self._context.settings, self._context.reader, name, here)
        except NodeError as error:
            reason = str(error)
        except Exception as error:
            log.exception("the journal of worker %s cannot be read", name)
            reason = str(error)
        self.post(m.JournalRecovered(name, reason))

    def _run_project(self, order: m.RunProject) -> None:
        self._here.add(f"project:{order.project_id}")
        project = ProjectActor(
            order.project_id,
            order.generation,
            order.slot,
            self._context,
            ProjectRecords(order.project_id, self._journal),
        )
        self._call(lambda: self._core.host(project))

    def _call(self, action: Callable[[], None]) -> None:
        """Have the runners carry out an action."""
        self._core.call(action)
        self._server.wake()
