"""The executor of a project: handles its events in batches, and answers each batch.

A batch ends after `BATCH_EVENTS` events, after a slice of time, or after `BATCH_BYTES` of writes.
The worker commits the batches of several projects at once; then the events are answered.
"""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from fieldbrook.actors.project.capabilities import ProjectCapabilities
from fieldbrook.actors.project.chains import ProjectChains
from fieldbrook.actors.project.configuration import NO_CONFIGURATION, read_configuration
from fieldbrook.actors.project.execution.activity import Activity
from fieldbrook.actors.project.execution.commands import NodeCommands
from fieldbrook.actors.project.execution.commit import (
    NODE_SCOPE,
    Batch,
    BatchCommitter,
    leases_of,
)
from fieldbrook.actors.project.execution.deduplication import (
    is_certainly_new,
    remember,
    stored_result,
)
from fieldbrook.actors.project.execution.look_ahead_rounds import LookAheadRounds
from fieldbrook.actors.project.execution.mqtt_order import MqttOrder
from fieldbrook.actors.project.execution.outbox_requests import OutboxRequests
from fieldbrook.actors.project.execution.runner import HandlerRunner, OpenDatabase
from fieldbrook.actors.project.execution.spans import CommitSpans, HandlerSpans
from fieldbrook.actors.project.live_checkpoints import LiveCheckpoints
from fieldbrook.actors.project.look_ahead.look_ahead import LookAhead
from fieldbrook.actors.project.pool import InstancePool
from fieldbrook.actors.project.routing import Target, count_dead
from fieldbrook.actors.project.topics import HandlerTopics
from fieldbrook.actors.project.traffic import TrafficGate
from fieldbrook.actors.store_watch import StoreWatch
from fieldbrook.actors.wire import (
    FOLLOWED,
    FRAME_EVENTS,
    NODE_COMMAND,
    POISON,
    WRITE_LOG,
    EventResult,
    Requester,
    WireEvent,
)
from fieldbrook.core import clock
from fieldbrook.core.errors import (
    ChainUnavailableError,
    IdempotencyKeyReusedError,
    StoreError,
    to_wire,
)
from fieldbrook.observability import metrics, spans
from fieldbrook.observability.health import HUNG_GUEST, ProcessHealth
from fieldbrook.storage.lmdb.condition import client_error
from fieldbrook.storage.project.deduplication import Outcome
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.registry.service import RegistryReader
from fieldbrook.storage.sql.sqlite import files as sql
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase

BATCH_EVENTS = FRAME_EVENTS
BATCH_BYTES = 16 << 20  # how many bytes of writes may wait in memory for their commit
SHARED_EVENTS = 6  # fewer events are as fast in separate instances (benchmarks/README.md)
_GAUGES_S = 1.0


class ProjectExecutor:
    """The logic of a project, without actors and threads; one thread at a time may use it.

    Args:
        project_id: the project.
        reader: the registry.
        store: the project's store.
        pool: the instance pool.
        api_hosts: the hosts that applets may call, from the settings.
        notify: called when outbox entries wait, with the name of the process that delivers them.
        open_database: opens the SQL database for a configuration; SQLite by default.
        chains: the connection to the chains; None when the node has none.
        health: where health conditions are reported.
        activity: the project writes its current step there.
        prover: whether the setting `prover_url` names a service for zero-knowledge proofs.
        topics: the topics that handlers may publish on; by default those without the setting
            `mqtt_device_topics`.
        look_ahead: runs heavy handlers before their turn; None when that is switched off.
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
        activity: Activity | None = None,
        *,
        prover: bool = False,
        topics: HandlerTopics | None = None,
        look_ahead: LookAhead | None = None,
    ) -> None:
        topics = topics or HandlerTopics(reader, project_id)
        self.health = health or ProcessHealth()
        self.activity = activity or Activity()
        self._project_id = project_id
        self._reader = reader
        self._store = store
        self._pool = pool
        self._chains = chains
        self._queue: collections.deque[tuple[Requester, Any, int]] = collections.deque()
        self._watch = StoreWatch(self.health, store)
        self._order = MqttOrder()
        self._runner = HandlerRunner(
            store,
            pool,
            ProjectCapabilities(topics, store.outbox, api_hosts, chains, prover=prover),
            open_database or (lambda config: SqliteDatabase(store.path / sql.FILE, config)),
            self.health,
            self.activity,
        )
        self._ahead = LookAheadRounds(look_ahead, self._runner)
        self._run_handler, self._run_shared = self._runner.run, self._runner.run_shared
        if spans.here is not None:
            traced = HandlerSpans(spans.here, project_id, self._runner)
            self._run_handler, self._run_shared = traced.run, traced.run_shared
        self._traffic = TrafficGate(self._runner.reader(NODE_SCOPE))
        self._committer = BatchCommitter(
            *(store, self._runner, self._traffic, self._order, self._watch, chains, self.activity),
            None if spans.here is None else CommitSpans(spans.here, project_id),
        )
        self._commands = NodeCommands(store, self._runner, self.activity, chains)
        self.outbox = OutboxRequests(project_id, store, self._watch, chains, notify)
        self._version = -1
        self._configuration = NO_CONFIGURATION
        self._followed = LiveCheckpoints()
        self._refused_now = False  # whether the store or a chain refused the last event
        self._gauges_at = float("-inf")
        self.gauges_due = math.inf  # the next time to set the gauges (`time.monotonic`)
        self.last_event = time.monotonic()

    def refresh(self) -> None:
        """Read the project's configuration again if the registry has changed."""
        version = self._reader.version()
        if version == self._version:
            return
        self.activity.enter("configure")  # with many strategies it takes milliseconds
        configuration = read_configuration(self._reader, self._project_id)
        self._configuration = configuration
        self._runner.configure(configuration)
        self._committer.configure(configuration)
        self._commands.configure(configuration)
        if self._chains is not None:
            self._chains.retries = configuration.retries_chains
        self._traffic.configure(configuration.traffic_limit)
        self._ahead.configure(configuration)
        self._version = version
        self.activity.enter("")

    def holds(self, requester: Requester) -> bool:
        """Whether MQTT events of a gateway are refused until it resumes."""
        return requester in self._order.held

    def close(self) -> None:
        """Close everything but the store; uncommitted writes to the database are dropped."""
        self._ahead.close()
        self._runner.close()
        if self._chains is not None:
            self._chains.close()

    @property
    def trace_state(self) -> Any:
        """The state of the project's trace (`Tracing.state`), None without one."""
        tracing = self._runner.tracing
        return None if tracing is None else tracing.state

    # ---------------------------------------------------------------- requests

    def take(self, requester: Requester, body: Any) -> None:
        """Queue a body (see `actors.wire`): a list of events, or a map with a request."""
        self._queue.append((requester, body, 0))

    @property
    def has_work(self) -> bool:
        """Whether a body waits, or a batch waits for which the journal had no room."""
        return bool(self._queue) or self._committer.has_unwritten

    @property
    def has_unwritten(self) -> bool:
        """Whether the next turn has to call `write_prepared`."""
        return self._committer.has_unwritten

    def write_prepared(self) -> None:
        """Commit the last batch in the store, because the journal had no room for it; call `finish`
        next."""
        self._committer.write_prepared()

    def unanswered(self) -> list[tuple[Requester, bool]]:
        """Return the requesters of the unanswered bodies, in order, and whether each body has
        begun."""
        begun = [(requester, body) for requester, _, body, _ in self._committer.batch]
        last = begun[-1][1] if begun else None
        queued = [
            (requester, at > 0) for requester, body, at in tuple(self._queue) if body is not last
        ]
        return [(requester, True) for requester, _ in begun] + queued

    def run(self, slice_s: float) -> None:
        """Handle queued bodies in order for about `slice_s` seconds, and prepare their commit.

        Then sync the journal, and call `finish`.
        """
        if self.health.has_conditions:
            self.activity.enter("probe")
            self._watch.probe()
            self.activity.enter("")
        self.refresh()
        batch = self._ahead.run(
            self._queue, self._configuration, lambda: self._handle_queue(slice_s)
        )
        if self._runner.overrun:
            self.health.raise_(HUNG_GUEST, self._runner.overrun)
            self._runner.overrun = ""
        elif HUNG_GUEST in self.health:
            self.health.clear(HUNG_GUEST)
        self._committer.prepare(batch)

    def finish(self, *, full: bool = False) -> None:
        """Answer the events of the prepared batch; not yet if the journal is `full`."""
        self._committer.finish(full=full)
        if full:
            return
        self._ahead.settle()
        self.outbox.announce()
        now = time.monotonic()
        if now >= self._gauges_at:
            self._set_gauges(now)
        else:
            self.gauges_due = self._gauges_at

    def _handle_queue(self, slice_s: float) -> Batch:
        """Handle bodies until a limit of the batch is reached.

        Bodies and events are handled inline: calls of functions would take more time than the work
        in them.
        """
        activity, runner, order, queue = self.activity, self._runner, self._order, self._queue
        batch = self._committer.batch = []
        now = time.monotonic()
        size, ends_at = 0, now + slice_s
        while queue:
            requester, events, at = queue[0]
            if requester.closed and not at and not isinstance(events, dict):
                queue.popleft()  # unanswered events, which the gateway may send again
                continue
            if isinstance(events, dict):
                if WRITE_LOG in events:
                    if self._is_checkpoint_wanted(events[WRITE_LOG]):
                        if batch:
                            break  # the checkpoint has to contain the events before the request
                        self.checkpoint()
                    requester.answer(self.trace_state)
                else:
                    activity.enter("outbox")  # a synced transaction
                    self.outbox.answer(requester, events)
                    activity.enter("")
                    self.last_event = now
                queue.popleft()
                continue
            results: list[EventResult] = []
            batch.append((requester, results, events, at))
            full = False
            while at < len(events) and not full:
                activity.busy_since = now
                done: Sequence[EventResult] = ()
                if order.held and (refusal := order.refusal(requester, events[at])):
                    done = (refusal,)
                elif self._configuration.per_batch:
                    done = self._handle_shared(events, at, BATCH_EVENTS - size)
                if not done:
                    done = (self._handle(events[at]),)
                results += done
                if self._refused_now:
                    self._refused_now = False
                    order.hold(requester, events)
                at += len(done)
                size += len(done)
                now = time.monotonic()
                full = size >= BATCH_EVENTS or now >= ends_at or runner.written_bytes >= BATCH_BYTES
            if at < len(events):
                queue[0] = requester, events, at
            else:
                queue.popleft()
            if full:
                break
        if batch:
            self.last_event = now
        return batch

    # ---------------------------------------------------------------- events

    def _handle(self, event: WireEvent) -> EventResult:
        """Handle one event, and return its result, which may be an error of the node."""
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
                result = (self._run_handler(targets[0], event),)
            else:
                result = self._run_all(targets, event)
            if event[5]:
                remember(self._store, event, result)
            return result
        except IdempotencyKeyReusedError as error:
            return to_wire(error)
        except StoreError as error:  # a failure of the node, not of the handler
            self._refused_now = True
            self._watch.failed(error)
            return to_wire(client_error(error))
        except ChainUnavailableError as error:
            self._refused_now = True
            return to_wire(error)

    def _run_all(self, targets: Sequence[Target], event: WireEvent) -> Outcome:
        """Run the handlers of an event.

        If one of them needs an unavailable chain, the effects of the handlers before it are
        removed, because all will run again. SQL statements of an earlier handler cannot be undone
        then. So events whose earlier handlers may write with SQL are not refused.
        """
        runner, chains = self._runner, self._chains
        retries = chains is not None and chains.retries
        mark = None
        if chains is not None and retries:
            chains.retries = not any(runner.writes_sql(target) for target in targets[:-1])
            mark = runner.mark()
        results = []
        try:
            for target in targets:
                # Each handler has a deadline of its own.
                self.activity.busy_since = time.monotonic()
                results.append(self._run_handler(target, event))
        except ChainUnavailableError:
            if chains is not None and mark is not None:
                for part, keys in leases_of(runner.undo(mark)).items():
                    chains.withdraw(part, keys)
            raise
        finally:
            if chains is not None:
                chains.retries = retries
        return tuple(results)

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
        if self._traffic.active:  # the traffic limit checks each event separately
            return ()
        event_type, store = events[at][0], self._store
        target = self._configuration.shared_target(event_type)
        if target is None:
            return ()
        end = at + 1
        last = min(len(events), at + limit)
        if self._runner.tracing is not None:
            last = self._runner.tracing.first_wanted(events, at, last)
        while end < last and events[end][0] == event_type and is_certainly_new(store, events[end]):
            end += 1
        if end - at < SHARED_EVENTS or not is_certainly_new(store, events[at]):
            return ()
        shared = events[at:end]
        results: Sequence[Outcome] = self._run_shared(target, shared)
        for event, result in zip(shared, results, strict=False):
            if event[5]:
                remember(store, event, result)
        return results

    # ---------------------------------------------------------------- between requests

    def run_idle_work(self) -> None:
        """Prepare the commit of waiting log rows, and check raised health conditions again.

        Call `finish` next, as after `run`.
        """
        self._order.forget_closed()
        if self.health.has_conditions:
            self.health.clear(HUNG_GUEST)
            self._watch.probe()
            self._runner.retry_unreadable()
        self._ahead.release_idle()
        self._committer.prepare([])

    def checkpoint(self) -> bool:
        """Write the batches that wait for a checkpoint to the store; return whether that
        succeeded."""
        self.activity.enter("checkpoint")
        began = time.monotonic()
        try:
            self._store.checkpoint()
        except StoreError as error:
            self._watch.failed(error)
            return False
        finally:
            self._followed.wrote(began, time.monotonic())
            self.activity.enter("")
        return True

    def _is_checkpoint_wanted(self, by: Any) -> bool:
        """Whether the value `by` of `WRITE_LOG` requires a checkpoint at once."""
        return by != FOLLOWED or self._followed.is_due(self._store.waiting_rows, time.monotonic())

    @property
    def can_retire(self) -> bool:
        """Whether the project has no work left: no outbox entries, no raised health condition, no
        waiting body.
        """
        return not (self._queue or len(self._store.outbox) or self.health.has_conditions)

    def _set_gauges(self, now: float) -> None:
        """Set the gauges of the store; call it once a second at most."""
        self._gauges_at, self.gauges_due = now + _GAUGES_S, math.inf
        store = self._store
        metrics.put(metrics.DEAD_STRATEGIES, count_dead(self._configuration.routes))
        metrics.put(metrics.DEAD_LETTERS, store.dead_letter_count)
        metrics.put(metrics.OUTBOX_PENDING, len(store.outbox))
        metrics.put(metrics.OUTBOX_PENDING_BYTES, store.outbox.bytes)
        metrics.put(metrics.STORE_USED, store.used_bytes)
        metrics.put(metrics.PROJECT_MEMORY, self._pool.kept_bytes + store.waiting_bytes)
