"""The actor of one project: it owns the strategies, the instance pool and the store.

It is a part of a worker, which gives it turns; one thread at a time runs a turn. The first turn
opens the store. Later turns handle bodies (lists of events and requests, see `actors.wire`), write
waiting batches to the store, or do idle work. The last turn closes the store.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from fieldbrook.actors import messages as m
from fieldbrook.actors.frame_server import Connection
from fieldbrook.actors.project.chains import ChainName, ProjectChains
from fieldbrook.actors.project.execution.activity import Activity
from fieldbrook.actors.project.execution.executor import ProjectExecutor
from fieldbrook.actors.project.link import Answer, ProjectLink
from fieldbrook.actors.project.look_ahead.look_ahead import LookAhead
from fieldbrook.actors.project.look_ahead.threads import LookAheadThreads
from fieldbrook.actors.project.pool import InstancePool
from fieldbrook.actors.project.topics import HandlerTopics
from fieldbrook.actors.shared_journal import ProjectRecords
from fieldbrook.actors.wire import LOST, NOT_HERE
from fieldbrook.core.errors import NodeError, StoreError
from fieldbrook.core.settings import Settings
from fieldbrook.observability import fault_points, metrics_table
from fieldbrook.observability.health import CANNOT_START, ProcessHealth
from fieldbrook.storage.journal.unapplied import apply_records
from fieldbrook.storage.project.history.tables import HistoryLimits
from fieldbrook.storage.project.store import ProjectStore, store_path
from fieldbrook.storage.registry.service import RegistryReader
from fieldbrook.storage.sql.access import database_access
from fieldbrook.wasm.engine.engine import Engine
from fieldbrook.wasm.limits import Limits

log = logging.getLogger(__name__)

CHECKPOINT_AFTER_S = 5.0
CHECKPOINT_BYTES = 4 << 20
_RETRY_S = 1.0  # pause after a checkpoint that failed
_SNAPSHOT_LOOK_S, _SNAPSHOT_RETRY_S = 1.0, 30.0
_YIELDS_AFTER_S = 2.0  # idle time before it makes room for a waiting project of the account
_REST_S = 0.25


class WorkerContext(msgspec.Struct, frozen=True):
    """The objects of a worker that all its projects use.

    `post` hands a message to the supervisor, from any thread.
    """

    settings: Settings
    run_dir: Path
    reader: RegistryReader
    engine: Engine
    look_ahead_threads: LookAheadThreads
    post: Callable[[object], None]


class ProjectActor:
    """One project in a worker.

    Args:
        project_id: the project.
        generation: how often the project was started; its messages carry it.
        slot: its row in the table of metrics.
        context: the objects that all projects of the worker use.
        records: takes the records of its batches.
    """

    def __init__(
        self,
        project_id: int,
        generation: int,
        slot: int,
        context: WorkerContext,
        records: ProjectRecords,
    ) -> None:
        self.project_id = project_id
        self.generation = generation
        self.part = f"project:{project_id}"
        self.row = metrics_table.attached_row(slot)
        self.records = records
        self.checkpoint_wanted = False  # the journal needs the space of its records
        self.retiring = self.closed = self.gone = False
        self._context = context
        self._idle_s = float(context.settings.project_idle_s)
        self._outside: list[tuple[ProjectLink, Any]] = []
        self.ended: m.ProjectEnded | m.Failed | None = None  # sent once the actor is gone
        self.notified: set[Connection] = (
            set()
        )  # connections that were answered `LOST` or `NOT_HERE`
        self.answers: list[Answer] = []  # of the current turn
        self._links: dict[Connection, ProjectLink] = {}
        self._lock = threading.Lock()  # for what the poller changes while a turn runs
        self._queued = False  # whether it waits for its turn or has one
        self._activity = Activity()
        self._executor: ProjectExecutor | None = None
        self._store: ProjectStore | None = None
        self._next_rest = 0.0
        self._next_checkpoint = 0.0
        self._next_snapshot = 0.0

    # ---------------------------------------------------------------- for the worker

    def link(self, connection: Connection) -> ProjectLink:
        """The project's side of a connection."""
        link = self._links.get(connection)
        if link is None:
            link = self._links[connection] = ProjectLink(connection, self.project_id, self.answers)
        return link

    def forget_closed_links(self) -> None:
        """Forget closed connections; if there were any, a turn is due: it notifies others again."""
        if any(connection.closed for connection in self._links):
            self._links = {c: link for c, link in self._links.items() if not c.closed}
            self._next_rest = 0.0

    def take(self, requester: ProjectLink, body: Any) -> bool | None:
        """Queue a body.

        Returns:
            Whether the caller has to schedule a turn: none is under way, and none is scheduled.
            None when the actor is gone and does not take the body.
        """
        with self._lock:
            if self.gone:
                return None
            if self.closed or self._executor is None:
                self._outside.append((requester, body))
            else:
                self._executor.take(requester, body)
            return self._claim()

    def claim_turn(self) -> bool:
        """Ask for a turn without a body; return whether the caller has to schedule it."""
        with self._lock:
            return self._claim()

    def end_turn(self) -> bool:
        """End a turn after its commit; return whether the caller has to schedule another one.

        If the actor is closed, it is gone now; `outside` has the bodies that came too late.
        """
        with self._lock:
            self.gone = self.closed
            self._queued = self._has_work()
            return self._queued

    @property
    def outside(self) -> list[tuple[ProjectLink, Any]]:
        """The bodies that came before the store was open, or after it was closed."""
        return self._outside

    def _claim(self) -> bool:
        claimed = not self._queued
        self._queued = True
        return claimed

    def _has_work(self) -> bool:
        if self._executor is None:
            return not self.closed
        return not self.closed and (self._executor.has_work or self.retiring)

    @property
    def opened(self) -> bool:
        """Whether its store was opened."""
        return self._executor is not None

    def wants_turn(self, now: float) -> bool:
        """Whether a turn without bodies is due: for a checkpoint, or for idle work."""
        return now >= self._next_rest or self.retiring or self.checkpoint_wanted

    @property
    def busy_since(self) -> float:
        """The start of the current step of its turn (`time.monotonic`); 0.0 between turns."""
        return self._activity.since

    def current(self) -> tuple[float, str, float]:
        """See `Activity.current`; from any thread."""
        return self._activity.current()

    def turn(self, slice_s: float) -> None:
        """Do one turn; call `finish` afterwards, when the journal has `records`."""
        if self.closed:
            return
        now = time.monotonic()
        executor = self._executor
        if executor is None:
            self._activity.enter("open")
            self._open()
            self._activity.enter("")
            return
        if executor.has_unwritten:
            executor.write_prepared()
        elif self._checkpoint_due(now):
            self.checkpoint_wanted = False
            self._next_checkpoint = now + (0.0 if executor.checkpoint() else _RETRY_S)
        elif self._snapshot_due():
            self._make_snapshot(executor)
        elif executor.has_work:
            self._next_rest = now + _REST_S
            executor.run(slice_s)
        elif self.retiring:
            self._close()
        else:
            self._announce_idle(now)
            executor.run_idle_work()
            self._next_rest = self._rest_at(now)

    def finish(self, *, full: bool) -> None:
        """Answer the bodies of the last turn; if the journal is `full`, the next turn does it."""
        if self._executor is not None:
            self._executor.finish(full=full)

    def yield_process(self) -> None:
        """Report `Idle` after a short time without events."""
        self._idle_s = min(self._idle_s, _YIELDS_AFTER_S)
        self._next_rest = 0.0

    def fail(self, *, blamed: bool = True) -> None:
        """End after an exception in its code: answer all requesters, save committed batches.

        Unless it is `blamed`, it may start again at once.

        Raises:
            StoreError: the batches that wait for a checkpoint cannot be written; only a new start
                of the worker, which reads the journal, can repair that.
        """
        executor, store = self._executor, self._store
        self.records.waiting.clear()
        if store is not None:
            store.dropped()
            store.checkpoint()
        with self._lock:
            self.closed = True
        if executor is not None:
            for requester, started in executor.unanswered():
                requester.answer(LOST if started else NOT_HERE)
            self.notified |= {connection for connection, _ in self.answers}
            self._end(executor)
        if store is not None:
            store.close()
        self.ended = m.ProjectEnded(self.part, self.generation, failed=blamed)

    def give_up(self, reason: str, state: str = CANNOT_START) -> None:
        """End an actor that could not be opened; its events wait in the gateways.

        Args:
            reason: why.
            state: the health condition that this means.
        """
        self.closed = True
        self.ended = m.Failed(self.part, reason, state)
        if self._store is not None:
            self._store.close()

    def stop(self) -> bool:
        """Close the store, because the worker ends; return whether it has all waiting batches."""
        executor, store = self._executor, self._store
        if self.closed or executor is None or store is None:
            return True
        saved = executor.checkpoint()
        self.closed = True
        executor.close()
        store.close()
        return saved

    # ---------------------------------------------------------------- its life

    def _open(self) -> None:
        context, settings = self._context, self._context.settings
        folder = store_path(settings.data / "projects", self.project_id)
        replicated = self.records.is_complete
        database = database_access(settings, folder, self.project_id, is_replicated=replicated)
        missing = self.records.take_over(folder)
        store = self._store = ProjectStore(
            folder,
            settings.project_map_bytes,
            database.committed,
            HistoryLimits.of(settings),
            journal=self.records,
            project_id=self.project_id,
        )
        if missing:
            apply_records(store, missing)
        chains = [ChainName(chain.id, chain.name) for chain in settings.chains]
        limits = Limits(deadline_ms=settings.deadline_ms, memory_bytes=settings.memory_limit_bytes)
        project = context.reader.project(self.project_id)
        account_id = 0 if project is None else project.account_id
        pool = InstancePool(settings.data / "modules", limits, context.engine, account_id)
        topics = HandlerTopics(context.reader, self.project_id, settings.mqtt_device_topic_list)
        post, part, generation = context.post, self.part, self.generation
        executor = ProjectExecutor(
            self.project_id,
            context.reader,
            store,
            pool,
            settings.api_host_list,
            lambda consumer: post(m.OutboxFilled(self.project_id, generation, consumer)),
            database.open,
            ProjectChains(
                self.project_id,
                chains,
                context.run_dir,
                store.leases,
                settings.default_chain,
            )
            if chains
            else None,
            ProcessHealth(lambda now: post(m.HealthReported(part, generation, now))),
            self._activity,
            prover=settings.prover_url is not None,
            topics=topics,
            look_ahead=self._look_ahead(pool, store, topics),
        )
        executor.refresh()
        with self._lock:
            for requester, body in self._outside:
                executor.take(requester, body)
            self._outside.clear()
            self._executor = executor
        post(m.Ready(part, generation, 0))
        executor.outbox.announce()

    def _look_ahead(
        self, pool: InstancePool, store: ProjectStore, topics: HandlerTopics
    ) -> LookAhead | None:
        threads, settings = self._context.look_ahead_threads, self._context.settings
        if not threads.count:
            return None
        return LookAhead(threads, pool, store, topics, settings.api_host_list, row=self.row)

    def _close(self) -> None:
        """Write the waiting batches, close the store, and report that."""
        executor, store = self._executor, self._store
        assert executor is not None
        assert store is not None
        if self.records.is_complete:
            self._commit_rows(store)
        if not executor.checkpoint():
            self.retiring = False  # the actor stays: only its memory has these batches
            self._context.post(m.Ready(self.part, self.generation, 0))
            return
        with self._lock:
            if executor.has_work:
                return  # a body has come meanwhile
            self.closed = True
        self._end(executor)
        number = store.number
        store.close()
        self.records.give_up(number)
        fault_points.hit("worker.project_closed")
        self.ended = m.ProjectEnded(self.part, self.generation, failed=False)

    def _commit_rows(self, store: ProjectStore) -> None:
        try:
            store.commit_rows()
        except StoreError as error:
            log.warning("%s: the next host lacks the newest rows of its log: %s", self.part, error)

    def _end(self, executor: ProjectExecutor) -> None:
        """Close all but the store. Connections that are refused until a `RESUME` remain so."""
        self.notified |= {
            link.connection for link in list(self._links.values()) if executor.holds(link)
        }
        executor.close()

    def _checkpoint_due(self, now: float) -> bool:
        store = self._store
        assert store is not None
        return now >= self._next_checkpoint and (
            self.checkpoint_wanted or store.is_waiting(CHECKPOINT_BYTES, now - CHECKPOINT_AFTER_S)
        )

    def _snapshot_due(self) -> bool:
        records, store = self.records, self._store
        # Asking for the size of a store takes longer than all other decisions about a turn.
        if not records.is_complete or time.monotonic() < self._next_snapshot:
            return False
        self._next_snapshot = time.monotonic() + _SNAPSHOT_LOOK_S
        return store is not None and records.wants_snapshot(store.copied_bytes)

    def _make_snapshot(self, executor: ProjectExecutor) -> None:
        """Keep a copy of the store in the cluster instead of the records that it contains."""
        store = self._store
        assert store is not None
        if not executor.checkpoint():
            return
        self._activity.enter("snapshot")
        settings = self._context.settings
        try:
            with tempfile.TemporaryDirectory(dir=settings.data / "uploads") as folder:
                store.copy_to(Path(folder))
                self.records.snapshot(store.number, Path(folder))
        except (NodeError, OSError) as error:
            # The records stay, and the next turn after the pause tries again.
            log.warning("%s: cannot write a snapshot of its store: %s", self.part, error)
            self._next_snapshot = time.monotonic() + _SNAPSHOT_RETRY_S
        self._activity.enter("")

    def _announce_idle(self, now: float) -> None:
        executor = self._executor
        assert executor is not None
        if executor.trace_state is not None and self._idle_s > _YIELDS_AFTER_S:
            return  # the trace would end with the actor
        idle = now - executor.last_event >= self._idle_s
        if idle and executor.can_retire and executor.checkpoint():
            executor.last_event = now
            self._context.post(m.Idle(self.project_id, self.generation))

    def _rest_at(self, now: float) -> float:
        """The time of the next turn without bodies; an idle project must use almost no time."""
        executor, store = self._executor, self._store
        assert executor is not None
        assert store is not None
        if executor.health.has_conditions:
            return now + _REST_S
        due = min(executor.last_event + self._idle_s, executor.gauges_due)
        if store.waiting_bytes:
            due = min(due, store.waiting_since + CHECKPOINT_AFTER_S)
        return max(due, now + _REST_S)
