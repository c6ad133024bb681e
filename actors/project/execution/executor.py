"""The data thread of a project: handles events in batches, commits each batch, answers its events.

A batch ends after `BATCH_EVENTS` events, `BATCH_S` of work or `BATCH_BYTES` of writes. It is
committed in one synced transaction. Its events are answered only after that commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from fieldbrook.actors.project.capabilities import ProjectCapabilities
from fieldbrook.actors.project.chains import ProjectChains
from fieldbrook.actors.project.configuration import NO_CONFIGURATION, read_configuration
from fieldbrook.actors.project.execution.activity import Activity
from fieldbrook.actors.project.execution.commands import NodeCommands
from fieldbrook.actors.project.execution.commit import NODE_SCOPE, Batch, BatchCommitter
from fieldbrook.actors.project.execution.deduplication import (
    is_certainly_new,
    remember,
    stored_result,
)
from fieldbrook.actors.project.execution.mqtt_order import MqttOrder
from fieldbrook.actors.project.execution.outbox_requests import OutboxRequests
from fieldbrook.actors.project.execution.runner import HandlerRunner, OpenDatabase
from fieldbrook.actors.project.pool import InstancePool
from fieldbrook.actors.project.routing import count_dead, match
from fieldbrook.actors.project.shards import Shards
from fieldbrook.actors.project.traffic import TrafficGate
from fieldbrook.actors.store_watch import StoreWatch
from fieldbrook.actors.wire import (
    FRAME_EVENTS,
    NODE_COMMAND,
    POISON,
    WRITE_LOG,
    Connection,
    EventResult,
    Request,
    WireEvent,
    unpack,
)
from fieldbrook.core import clock
from fieldbrook.core.errors import IdempotencyKeyReusedError, StoreError, to_wire
from fieldbrook.observability import metrics
from fieldbrook.observability.health import HUNG_GUEST, SHARDS_DIE, ProcessHealth
from fieldbrook.storage.lmdb.condition import client_error
from fieldbrook.storage.project.deduplication import Outcome
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.registry.service import RegistryReader
from fieldbrook.storage.sql.sqlite import files as sql
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase

BATCH_EVENTS = FRAME_EVENTS
BATCH_S = 0.020
BATCH_BYTES = 16 << 20  # of writes that wait in memory for their commit
SHARED_EVENTS = 6  # fewer events are as fast in separate instances (benchmarks/README.md)
_GAUGES_S = 1.0

Frames = list[tuple[Connection, Any]]
"""Decoded requests: a list of events, or a map (a request to the outbox, or to write the log)."""


class ProjectExecutor:
    """The logic of the data thread, without actors and threads.

    Args:
        project_id: the project.
        reader: the registry.
        store: the project's store.
        pool: the instance pool.
        api_hosts: the hosts that applets may call, from the settings.
        notify: called when outbox entries wait, with the part of the node that delivers them.
        open_database: opens the SQL database for a configuration; SQLite by default.
        chains: the connection to the chains; None when the node has none.
        health: where health conditions are reported.
        prover: whether the setting `prover_url` names a service for zero-knowledge proofs.
        shards: the processes for speculative runs; None when they are switched off.
    """

    def __init__(
        self,
        project_id: int,
        reader: RegistryReader,
        store: ProjectStore,
        pool: InstancePool,
        api_hosts: Sequence[str] = (),
        notify: Callable[[str], None] = lambda _consumer: None,
        open_database: OpenDatabase | None = None,
        chains: ProjectChains | None = None,
        health: ProcessHealth | None = None,
        *,
        prover: bool = False,
        shards: Shards | None = None,
    ) -> None:
        self.health = health or ProcessHealth()
        self.activity = Activity()
        self._project_id = project_id
        self._reader = reader
        self._store = store
        self._shards = shards
        self._watch = StoreWatch(self.health, store)
        self._order = MqttOrder()
        self._runner = HandlerRunner(
            store,
            pool,
            ProjectCapabilities(reader, store.outbox, api_hosts, chains, prover=prover),
            open_database or (lambda config: SqliteDatabase(store.path / sql.FILE, config)),
            self.health,
            self.activity,
        )
        self._traffic = TrafficGate(self._runner.reader(NODE_SCOPE))
        self._committer = BatchCommitter(
            *(store, self._runner, self._traffic, self._order, self._watch, chains, self.activity)
        )
        self._commands = NodeCommands(store, self._runner, self.activity)
        self.outbox = OutboxRequests(project_id, store.outbox, self._watch, chains, notify)
        self._version = -1
        self._configuration = NO_CONFIGURATION
        self._store_failed = False  # while the last event was handled; commits do not count here
        self._gauges_at = float("-inf")
        self.last_event = time.monotonic()

    def refresh(self) -> None:
        """Read the project's configuration again if the registry has changed."""
        version = self._reader.version()
        if version == self._version:
            return
        configuration = read_configuration(self._reader, self._project_id)
        self._configuration = configuration
        self._runner.configure(configuration)
        self._committer.configure(configuration)
        self._commands.configure(configuration)
        self._traffic.configure(configuration.traffic_limit)
        if self._shards is not None:
            self._shards.use(configuration.env, configuration.applets.values())
        self._version = version

    def close_database(self) -> None:
        """Close the project's database; uncommitted writes are dropped."""
        self._runner.close_database()

    @property
    def trace_state(self) -> Any:
        """The state of the project's trace (`Tracing.state`), None without one."""
        tracing = self._runner.tracing
        return None if tracing is None else tracing.state

    # ---------------------------------------------------------------- requests

    def on_requests(self, requests: list[Request]) -> None:
        """Handle all requests of one poll in order, and answer them."""
        self.refresh()
        frames = [(connection, unpack(data)) for connection, data in requests]
        if self._shards is None:
            self._execute(frames)
        else:
            self._execute_with_shards(self._shards, frames)
        if self._runner.overrun:
            self.health.raise_(HUNG_GUEST, self._runner.overrun)
            self._runner.overrun = ""
        elif HUNG_GUEST in self.health:
            self.health.clear(HUNG_GUEST)

    def _execute(self, frames: Frames) -> float:
        """Handle requests; return the thread's CPU time until the last commit, in seconds.

        The loop has no function of its own for a frame or an event: the calls would cost more
        than what they do.
        """
        began_s = time.thread_time() if self._shards is not None else 0.0
        activity, runner, order = self.activity, self._runner, self._order
        batch: Batch = []
        log_readers: list[Connection] = []
        now = time.monotonic()
        size, ends_at = 0, now + BATCH_S
        for connection, events in frames:
            if isinstance(events, dict):
                if WRITE_LOG in events:
                    log_readers.append(connection)
                else:
                    self.outbox.answer(connection, events)
                continue
            results: list[EventResult] = []
            batch.append((connection, results, events, 0))
            at = 0
            while at < len(events):
                activity.busy_since = now
                done: Sequence[EventResult] = ()
                if order.held and (refusal := order.refusal(connection, events[at])):
                    done = (refusal,)
                elif self._configuration.per_batch:
                    done = self._handle_shared(events, at, BATCH_EVENTS - size)
                if not done:
                    done = (self._handle(events[at]),)
                results += done
                if self._store_failed:
                    self._store_failed = False
                    order.hold(connection, events)
                at += len(done)
                size += len(done)
                now = time.monotonic()
                if size >= BATCH_EVENTS or now >= ends_at or runner.written_bytes >= BATCH_BYTES:
                    self._commit(batch)
                    if runner.speculation is not None:
                        runner.speculation.settle()
                    self.refresh()  # a new module takes over between two batches
                    results = []
                    batch = [(connection, results, events, at)]
                    now = time.monotonic()
                    size, ends_at = 0, now + BATCH_S
        cpu_s = time.thread_time() - began_s if self._shards is not None else 0.0
        self._commit(batch)
        if log_readers:
            self._write_log(log_readers)
        if len(log_readers) < len(frames):  # requests to write the log keep no project awake
            self.last_event = now
        if now >= self._gauges_at:
            self._set_gauges(now)
        return cpu_s

    def _execute_with_shards(self, shards: Shards, frames: Frames) -> None:
        """Handle requests while shards run later events in advance, if that pays off."""
        if shards.wanted and self._configuration.closed is None:
            events = [e for _, frame in frames if not isinstance(frame, dict) for e in frame]
            self._runner.speculation = shards.speculate(
                events, lambda event: self._configuration.shard_targets(event)
            )
        # Thread CPU time, not wall time: on a busy machine wall time would make every handler
        # look expensive, and CPU time is all that shards can take over.
        cpu_s = self._execute(frames)
        self._runner.speculation = None
        count = sum(len(frame) for _, frame in frames if not isinstance(frame, dict))
        shards.end_requests(cpu_s, count)
        if shards.failure or self.health.has_conditions:
            self._check_shards(shards)

    def _commit(self, batch: Batch) -> None:
        self._committer.commit(batch)
        if self.health.has_conditions:
            self._watch.probe()
        self.outbox.announce()

    def _write_log(self, readers: Sequence[Connection]) -> None:
        """Write the log and the history to disk, then answer the requests."""
        self.activity.enter("log")
        try:
            self._store.write_logs()
        except StoreError as error:
            self._watch.failed(error)
        state = self.trace_state
        for connection in readers:
            connection.answer(state)
        self.activity.enter("")

    # ---------------------------------------------------------------- events

    def _handle(self, event: WireEvent) -> EventResult:
        """Handle one event; an error of the node is its result as well."""
        if event[1] == NODE_COMMAND:
            return self._commands.execute(event)
        try:
            if event[5]:
                known = stored_result(self._store, event)
                if known is not None:
                    self._committer.duplicates.add(id(event))
                    return known
            configuration = self._configuration
            if configuration.closed is not None:
                return to_wire(configuration.closed)
            targets = configuration.targets(event)
            if event[5] & POISON:
                result = self._runner.refuse_poison(targets, event)
                remember(self._store, event, result)
                return result
            if self._traffic.active:
                refusal = self._traffic.admit(event[1], clock.now_ms())
                if refusal is not None:
                    return to_wire(refusal)
            if len(targets) == 1:
                result = (self._runner.run(targets[0], event),)
            else:
                results = []
                for target in targets:
                    # Each handler has a deadline of its own.
                    self.activity.busy_since = time.monotonic()
                    results.append(self._runner.run(target, event))
                result = tuple(results)
            if event[5]:
                remember(self._store, event, result)
            return result
        except IdempotencyKeyReusedError as error:
            return to_wire(error)
        except StoreError as error:  # a failure of the node, not of the handler
            self._store_failed = True
            self._watch.failed(error)
            return to_wire(client_error(error))

    def _handle_shared(
        self, events: Sequence[WireEvent], at: int, limit: int
    ) -> Sequence[EventResult]:
        """Run consecutive events in one shared instance.

        Args:
            events: the events of a frame.
            at: the index of the first event.
            limit: how many more events the batch may hold.

        Returns:
            Their results; empty when the event at `at` has to run alone.
        """
        configuration = self._configuration
        # A traffic limit checks each event by itself.
        if configuration.closed is not None or self._traffic.active:
            return ()
        event_type = events[at][0]
        targets = match(configuration.routes, event_type)
        if len(targets) != 1 or targets[0].applet_id not in configuration.per_batch:
            return ()
        target, store = targets[0], self._store
        if target.dead:
            return ()
        end = at + 1
        last = min(len(events), at + limit)
        if self._runner.tracing is not None:
            last = self._runner.tracing.first_wanted(events, at, last)
        while end < last and events[end][0] == event_type and is_certainly_new(store, events[end]):
            end += 1
        if end - at < SHARED_EVENTS or not target.started:
            return ()
        if not is_certainly_new(store, events[at]):
            return ()
        shared = events[at:end]
        results: Sequence[Outcome] = self._runner.run_shared(target, shared)
        for event, result in zip(shared, results, strict=False):
            if event[5]:
                remember(store, event, result)
        return results

    # ---------------------------------------------------------------- between requests

    def on_quiet(self) -> None:
        """Use an idle moment: write waiting log rows, and check raised health conditions again."""
        self._order.forget_closed()
        self.activity.enter("log")
        try:
            self._store.flush_logs()
        except StoreError as error:
            self._watch.failed(error)
        if self.health.has_conditions:
            self.health.clear(HUNG_GUEST)
            self._watch.probe()
            self._runner.retry_unreadable()
        if self._shards is not None:
            self._shards.rest()
            self._check_shards(self._shards)
        now = time.monotonic()
        if now >= self._gauges_at:
            self._set_gauges(now)
        self.activity.enter("")

    def _check_shards(self, shards: Shards) -> None:
        """Raise the health condition `SHARDS_DIE` while shards fail, and clear it afterwards."""
        if shards.failure:
            self.health.raise_(SHARDS_DIE, shards.failure)
        elif self.health.has_conditions:
            self.health.clear(SHARDS_DIE)

    def _set_gauges(self, now: float) -> None:
        """Set the gauges of the store and the shards; call it once a second at most."""
        self._gauges_at = now + _GAUGES_S
        store = self._store
        metrics.put(metrics.DEAD_STRATEGIES, count_dead(self._configuration.routes))
        metrics.put(metrics.DEAD_LETTERS, store.dead_letter_count)
        metrics.put(metrics.OUTBOX_PENDING, len(store.outbox))
        metrics.put(metrics.OUTBOX_PENDING_BYTES, store.outbox.bytes)
        metrics.put(metrics.STORE_USED, store.used_bytes)
        if self._shards is not None:
            metrics.put(metrics.SHARDS, len(self._shards.pids))
