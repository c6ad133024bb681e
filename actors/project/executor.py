"""The work of a project's data thread: route, run, commit and answer events.

A batch ends after `BATCH_EVENTS` events, `BATCH_S` of work or `BATCH_BYTES` of writes. It is
committed in one synced transaction. Its events are answered only after that commit.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from fieldbrook.actors.project.capabilities import ProjectSurroundings
from fieldbrook.actors.project.chains import HELLO, Origin, ProjectChains
from fieldbrook.actors.project.pool import InstancePool
from fieldbrook.actors.project.routing import (
    Routes,
    Target,
    build_routes,
    count_dead,
    find_target,
    match,
)
from fieldbrook.actors.project.shards import Ahead, Shards
from fieldbrook.actors.project.traffic import TrafficGate
from fieldbrook.actors.store_watch import StoreWatch
from fieldbrook.actors.wire import (
    AFTER,
    BY_MQTT,
    CLEAR_LOG,
    DELIVERY,
    DONE,
    EXACT,
    FRAME_EVENTS,
    KEY_ITEM,
    KEYED,
    NAMED,
    NODE_COMMAND,
    POISON,
    REDELIVERY,
    REFUSED,
    REPEATED,
    REPLAY,
    REPLAY_EVENTS,
    RESUME,
    SOURCE_BITS,
    TAKE,
    TAKER,
    WRITE_LOG,
    EventResult,
    HandlerResult,
    Connection,
    Request,
    WireEvent,
    key_of,
    name_of,
    unpack,
)
from fieldbrook.core import clock
from fieldbrook.core.errors import (
    BatchTooLargeError,
    DisabledAccountError,
    EffectsTooLargeError,
    IdempotencyKeyReusedError,
    ModuleRefusedError,
    NodeError,
    StorageQuotaError,
    StoreError,
    TrafficLimitExceededError,
    UnavailableError,
    to_wire,
)
from fieldbrook.core.model import ENABLED, EVENT, PER_BATCH, PER_EVENT, PROJECT_DATABASE, Applet
from fieldbrook.observability import fault_points, metrics
from fieldbrook.observability.health import HUNG_GUEST, MODULE_UNREADABLE, SHARDS_DIE, ProcessHealth
from fieldbrook.storage.lmdb.condition import client_error
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.dead_letters import DeadLetter
from fieldbrook.storage.project.deduplication import (
    Outcome,
    digest_of,
    digests_of_key,
    old_digest_of,
)
from fieldbrook.storage.project.history import DUPLICATE, event_record, replay_of
from fieldbrook.storage.project.outbox import API, MQTT, TRANSACTIONS, OutboxEntry
from fieldbrook.storage.project.rows import LogRow, MetricRow
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.registry.service import RegistryReader, RegistrySnapshot
from fieldbrook.storage.sql.database import ProjectDatabase
from fieldbrook.storage.sql.sqlite import files as sql
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.wasm.limits import DEADLINE
from fieldbrook.wasm.module.abi import LOG_ERROR, NOT_EXPORTED, SOURCE_TASK
from fieldbrook.wasm.run import ApiCall, Effect, Host, Message, Metric, Run, Transaction

log = logging.getLogger(__name__)

BATCH_EVENTS = FRAME_EVENTS
BATCH_S = 0.020
BATCH_BYTES = 16 << 20  # of writes that wait in memory for their commit
TOGETHER_EVENTS = 6  # fewer events are as fast in separate instances (benchmarks/README.md)
_MEASURE_S = 1.0
TAKE_LIMIT = 256  # outbox entries in one answer

_WAYS_REMEMBERED = 1_024
_NODE = 0  # the owner of the node's own keys; no applet has this id

FAILED = -1
NOT_RUNNING = "instance not running"


_NOT_KEPT = frozenset(
    error.__name__ for error in (TrafficLimitExceededError, DisabledAccountError, StorageQuotaError)
)
DEADLY = "the project's process died on this event twice"
NO_LETTER = "there is no such dead letter"
NOT_KEPT = "its payload is not kept"
NO_MATCH = "no strategy matches its type"
NO_STRATEGY = "its strategy is gone"
HANDLED_BEFORE: Outcome = ((0, 0, ""),)
"""The answer to a repeated delivery; its content is not read."""

Batch = list[tuple[Connection, list[EventResult], Sequence[WireEvent], int]]
"""The frames of a batch: the connection to answer, the results so far, the events of the frame,
and the index of the first event that belongs to this batch."""


class ProjectExecutor:
    """The logic of the data thread, without actors and threads.

    Args:
        project_id: the project.
        reader: the registry.
        store: the project's store.
        pool: the instance pool.
        api_hosts: the hosts that applets may call, from the settings.
        tell: called with the taker of outbox entries when some wait for it.
        open_database: opens the SQL database for a configuration; SQLite by default.
        chains: the connection to the chains; None when the node has none.
        health: where health conditions are reported.
        prover: whether a prover is configured.
        shards: the processes for speculative runs; None when they are switched off.
    """

    def __init__(
        self,
        project_id: int,
        reader: RegistryReader,
        store: ProjectStore,
        pool: InstancePool,
        api_hosts: Sequence[str] = (),
        tell: Callable[[str], None] = lambda _taker: None,
        open_database: Callable[[Mapping[str, Any]], ProjectDatabase] | None = None,
        chains: ProjectChains | None = None,
        health: ProcessHealth | None = None,
        *,
        prover: bool = False,
        shards: Shards | None = None,
    ) -> None:
        self.health = health or ProcessHealth()
        self._watch = StoreWatch(self.health, store)
        self._phase: tuple[str, float] = ("", 0.0)
        self._ways: dict[str, tuple[tuple[int, int, int], ...]] = {}
        self._behind: set[Connection] = (
            set()
        )  # gateways that have not learned of a refused event yet
        self._store_refused = False  # for a single event, not for its batch
        self._again: set[int] = set()  # duplicate events of this batch, by `id()`
        self._overrun = ""  # the handler of this round that was ended at its deadline
        self._unreadable: set[int] = set()  # applets whose module could not be loaded
        self._project_id = project_id
        self._reader = reader
        self._store = store
        self._pool = pool
        self._tell = tell
        self._open_database = open_database or (
            lambda config: SqliteDatabase(store.path / sql.FILE, config)
        )
        self._version = -1
        self._closed: NodeError | None = None  # the reason while the project takes no events
        self._routes: Routes = {}
        self._applets: dict[int, Applet] = {}
        self._scopes: dict[int, bytes] = {}
        self._reads: dict[int, Callable[[bytes], bytes | None]] = {}
        self._hosts: dict[int, Host] = {}
        self._per_batch: frozenset[int] = frozenset()
        self._env: dict[str, str] = {}
        self._sql: ProjectDatabase | None = None
        self._database: bytes | None = None
        self._written = 0
        self._shards = shards
        self._ahead: Ahead | None = None  # of the current round, if shards help with it
        self._chains = chains
        self._surroundings = ProjectSurroundings(
            reader, store.outbox, api_hosts, chains, prover=prover
        )
        self.told: set[str] = set()  # takers whose outbox entries the supervisor knows about
        self._node_scope = kv.scope(_NODE)
        self._traffic = TrafficGate(self._reader_of(self._node_scope))
        self.busy_since = 0.0
        self._measured = float("-inf")
        self.last_event = time.monotonic()

    def doing(self) -> tuple[float, str, float]:
        """Return how long a handler has been running, the current phase, and its duration.

        Durations are in seconds; they are 0.0 when no handler runs or no phase is named. A phase
        is work outside a handler, such as "commit". Callable from any thread.
        """
        now, busy_since, (phase, since) = time.monotonic(), self.busy_since, self._phase
        return now - busy_since if busy_since else 0.0, phase, now - since if phase else 0.0

    def _enter(self, phase: str) -> None:
        """Begin a phase in which no handler runs; "" is a phase without a name."""
        self.busy_since, self._phase = 0.0, (phase, time.monotonic() if phase else 0.0)

    def refresh(self) -> None:
        """Read routes, applets and environment again if the registry has changed."""
        version = self._reader.version()
        if version == self._version:
            return
        with self._reader.snapshot() as registry:
            applets = registry.applets(self._project_id)
            self._env = registry.environment(self._project_id)
            database = registry.config(self._project_id, PROJECT_DATABASE)
            exported = {
                applet.applet_id: resource.handlers
                for applet in applets
                if (resource := registry.resource(applet.resource_id)) is not None
            }
            strategies = registry.strategies(self._project_id)
            self._routes = build_routes(strategies, applets, exported)
            limits = registry.traffic_limits(self._project_id)
            self._closed = _why_closed(registry, self._project_id)
        self._applets = {applet.applet_id: applet for applet in applets}
        self._per_batch = frozenset(
            applet.applet_id for applet in applets if applet.isolation == PER_BATCH
        )
        self._scopes = {applet.applet_id: kv.scope(kv.owner(applet)) for applet in applets}
        self._reads = {applet_id: self._reader_of(s) for applet_id, s in self._scopes.items()}
        self._hosts = {}
        self._use_database(database.value if database else None)
        self._surroundings.forget()
        self._traffic.configure(next((t for t in limits if t.api_type == EVENT), None))
        self._pool.keep_only(applets)
        self._ways.clear()
        if self._shards is not None:
            self._shards.use(self._env, applets)
        self._version = version

    def _use_database(self, config: bytes | None) -> None:
        """Open the database anew if its configuration changed.

        This happens between two batches only, so a batch never sees two configurations.
        """
        if config == self._database:
            return
        self.close_database()
        self._database = config
        if config is not None:
            self._sql = self._open_database(msgspec.json.decode(config))

    def close_database(self) -> None:
        """Close the project's database; uncommitted writes are dropped."""
        if self._sql is not None:
            self._sql.close()
            self._sql = None

    def _reader_of(self, scope: bytes) -> Callable[[bytes], bytes | None]:
        store = self._store
        return lambda key: store.read(kv.stored_key(scope, key))

    def on_requests(self, requests: list[Request]) -> None:
        """Run the events of some frames in order, in batches, and answer each batch."""
        self.refresh()
        frames = [(connection, unpack(data)) for connection, data in requests]
        if self._shards is not None and self._shards.wanted and self._closed is None:
            self._ahead = self._shards.look_ahead(_events_of(frames), self._shardable)
        batch: Batch = []
        # Thread CPU time, not wall time: on a busy machine wall time would make every handler
        # look expensive, and CPU time is all that shards can take over.
        computed_s = time.thread_time() if self._shards is not None else 0.0
        now = time.monotonic()
        size, limit = 0, now + BATCH_S
        readers: list[Connection] = []
        for connection, events in frames:
            if isinstance(events, dict):
                if WRITE_LOG in events:
                    readers.append(connection)
                else:
                    self._give_outbox(connection, events)
                continue
            part: list[EventResult] = []
            batch.append((connection, part, events, 0))
            at = 0
            while at < len(events):
                self.busy_since = now
                if self._behind and (held := self._held_back(connection, events[at])):
                    results: Sequence[EventResult] = (held,)
                else:
                    results = self._handle_together(events, at, BATCH_EVENTS - size)
                part += results or (self._handle(events[at]),)
                if self._store_refused:
                    self._store_refused = False
                    self._hold_back(connection, events)
                at += len(results) or 1
                size += len(results) or 1
                now = time.monotonic()
                if size >= BATCH_EVENTS or now >= limit or self._written >= BATCH_BYTES:
                    self._finish(batch)
                    if self._ahead is not None:
                        self._ahead.settle()
                    self.refresh()  # a new module takes over between two batches
                    part = []
                    batch = [(connection, part, events, at)]
                    now = time.monotonic()
                    size, limit = 0, now + BATCH_S
        if self._shards is not None:
            computed_s = time.thread_time() - computed_s
        self._finish(batch)
        if readers:
            self._write_log(readers)
        self.measure(now)
        if self._overrun:
            self.health.raise_(HUNG_GUEST, self._overrun)
            self._overrun = ""
        else:
            self.health.clear(HUNG_GUEST)
        if self._shards is not None:
            self._ahead = None
            self._shards.round_over(computed_s, _count(frames))
            self._look_at_shards(self._shards)
        if len(readers) < len(frames):  # requests to write the log keep no project awake
            self.last_event = now

    def _write_log(self, readers: Sequence[Connection]) -> None:
        """Write the log and the history to disk, then answer the connections that want to read them."""
        self._enter("log")
        try:
            self._store.write_logs()
        except StoreError as error:
            self._watch.failed(error)
        for connection in readers:
            connection.answer(None)
        self._enter("")

    def on_quiet(self) -> None:
        """Use an idle moment: write waiting log rows, and check raised health conditions again."""
        self._behind = {connection for connection in self._behind if not connection.closed}
        self._enter("log")
        try:
            self._store.flush_logs()
        except StoreError as error:
            self._watch.failed(error)
        if self.health.has_conditions:
            self.health.clear(HUNG_GUEST)
            self._watch.look_again()
            for applet_id in list(self._unreadable):
                self._load_again(applet_id)
        if self._shards is not None:
            self._shards.rest()
            self._look_at_shards(self._shards)
        self.measure(time.monotonic())
        self._enter("")

    def _hold_back(self, connection: Connection, events: Sequence[WireEvent]) -> None:
        """Refuse further MQTT messages of a gateway until it knows that one was not stored.

        Later messages are already on their way. They must not overtake the refused one.
        """
        if any(event[5] & SOURCE_BITS == BY_MQTT for event in events):
            self._behind.add(connection)

    def _held_back(self, connection: Connection, event: WireEvent) -> EventResult | None:
        """Return the refusal of an event that follows one that was not stored.

        None means that the event may run. The command `RESUME` ends the refusals for its connection.
        """
        if event[1] == NODE_COMMAND and event[0] == RESUME:
            self._behind.discard(connection)
        if connection not in self._behind or event[5] & SOURCE_BITS != BY_MQTT:
            return None
        return to_wire(UnavailableError(what="an earlier event could not be stored"))

    def _look_at_shards(self, shards: Shards) -> None:
        """Raise the health condition `SHARDS_DIE` while shards fail, and clear it afterwards."""
        if shards.failure:
            self.health.raise_(SHARDS_DIE, shards.failure)
        elif self.health.has_conditions:
            self.health.clear(SHARDS_DIE)

    def _load_again(self, applet_id: int) -> None:
        if applet_id in self._applets:
            with contextlib.suppress(ModuleRefusedError):
                self._host(applet_id)
        else:
            self._readable(applet_id)

    def _readable(self, applet_id: int) -> None:
        self._unreadable.discard(applet_id)
        if not self._unreadable:
            self.health.clear(MODULE_UNREADABLE)

    def _handle_together(
        self, events: Sequence[WireEvent], at: int, room: int
    ) -> Sequence[EventResult]:
        """Run consecutive events from `at` on in one shared instance.

        Args:
            events: the events of a frame.
            at: the index of the first event.
            room: how many more events the batch may hold.

        Returns:
            Their results; empty when the event at `at` has to run alone.
        """
        if not self._per_batch or self._traffic.active:  # a traffic limit checks each event
            return ()
        if self._closed is not None:
            return ()
        event_type = events[at][0]
        targets = match(self._routes, event_type)
        if len(targets) != 1 or targets[0].applet_id not in self._per_batch:
            return ()
        target = targets[0]
        if target.dead:
            return ()
        end = at + 1
        limit = min(len(events), at + room)
        while end < limit and events[end][0] == event_type and self._is_new(events[end]):
            end += 1
        if end - at < TOGETHER_EVENTS or not target.started or not self._is_new(events[at]):
            return ()
        together = events[at:end]
        read = self._reads[target.applet_id]
        around = self._surroundings
        runs = [
            Run(event[3], event_type, self._env, read, around, origin=_origin(event, target))
            for event in together
        ]
        try:
            outcomes = self._host(target.applet_id).run_batch(target.handler, runs)
        except ModuleRefusedError:
            return ()
        results = []
        for event, run, (code, error) in zip(together, runs, outcomes, strict=False):
            result = (self._settle(target, event, run, code, error),)
            if event[5]:
                self._remember(event, result)
            results.append(result)
        return results

    def _is_new(self, event: WireEvent) -> bool:
        """Whether an event is certainly no duplicate, so that it may share an instance.

        An event with a name or an idempotency key is always handled alone: a duplicate of it may
        be in the same frame. A poison event is handled alone as well.
        """
        kind = event[5]
        if kind & (NAMED | KEYED | POISON):
            return False
        return not (kind & REDELIVERY and self._store.was_delivered(name_of(event)))

    def _handle(self, event: WireEvent) -> EventResult:
        if event[1] == NODE_COMMAND:
            return self._obey(event)
        if event[5]:
            try:
                known = self._known(event)
            except IdempotencyKeyReusedError as error:
                return to_wire(error)
            except StoreError as error:
                self._store_refused = True
                self._watch.failed(error)
                return to_wire(client_error(error))
            if known is not None:
                self._again.add(id(event))
                return known
        if self._closed is not None:
            return to_wire(self._closed)
        targets = self._targets(event)
        if event[5] & POISON:
            return self._bury_unrun(targets, event)
        try:
            if self._traffic.active:
                refusal = self._traffic.take(event[1], clock.now_ms())
                if refusal is not None:
                    return to_wire(refusal)
            if len(targets) == 1:
                result: Outcome = (self._run(targets[0], event),)
            else:
                results = []
                for target in targets:
                    self.busy_since = time.monotonic()  # each handler has a deadline of its own
                    results.append(self._run(target, event))
                result = tuple(results)
            if event[5]:
                self._remember(event, result)
            return result
        except StoreError as error:  # a failure of the node, not of the handler
            self._store_refused = True
            self._watch.failed(error)
            return to_wire(client_error(error))

    def _known(self, event: WireEvent) -> Outcome | None:
        """Deduplication: return the stored result of a duplicate event; None for a new event."""
        kind = event[5]
        if kind & KEYED:
            known = self._known_by_key(event)
            if known is not None:
                return known
        if kind & NAMED:
            return self._known_by_name(event)
        if kind & REDELIVERY and self._store.was_delivered(name_of(event)):
            return HANDLED_BEFORE
        return None

    def _known_by_name(self, event: WireEvent) -> Outcome | None:
        event_type, publisher_id, event_id, payload, _, kind, name = event
        store, now = self._store, clock.now_ms()
        name = key_of(event)[1] if kind & KEYED else name or event_id
        known = store.outcome_of(digest_of(publisher_id, event_type, name, payload), now)
        if known is None and store.has_old_digests:
            known = store.outcome_of(old_digest_of(publisher_id, event_id, payload), now)
        return known

    def _known_by_key(self, event: WireEvent) -> Outcome | None:
        """Return the result that is stored under an event's `Idempotency-Key`.

        Raises:
            IdempotencyKeyReusedError: the key was used for another event.
        """
        event_type, publisher_id, _, payload, _, _, _ = event
        key, now = key_of(event)[0], clock.now_ms()
        with_event, alone = digests_of_key(publisher_id, event_type, key, payload)
        known = self._store.outcome_of(with_event, now)
        if known is None and self._store.outcome_of(alone, now) is not None:
            raise IdempotencyKeyReusedError(key=key.partition(KEY_ITEM)[0])
        return known

    def _remember(self, event: WireEvent, outcome: Outcome) -> None:
        """Store an event's result for deduplication with the commit of its batch.

        An event without a matching strategy is not stored, unless it is a delivery: it has done
        nothing, and a strategy may match when it is sent again.
        """
        event_type, publisher_id, event_id, payload, _, kind, name = event
        finished = self._store.outcomes
        if kind & DELIVERY:
            self._store.deliveries[name or event_id] = None
        elif not outcome:
            return
        if kind & KEYED:
            key, name = key_of(event)
            with_event, alone = digests_of_key(publisher_id, event_type, key, payload)
            finished[with_event], finished[alone] = outcome, ()
        if kind & NAMED:
            finished[digest_of(publisher_id, event_type, name or event_id, payload)] = outcome

    def _run(self, target: Target, event: WireEvent) -> HandlerResult:
        if not target.started:
            metrics.add(metrics.RUN_FAILURES["not_running"])
            self._bury(target, event, NOT_RUNNING)
            return target.instance_id, FAILED, NOT_RUNNING
        if target.dead:
            return self._bury_dead(target, event)
        read = self._reads[target.applet_id]
        origin = _origin(event, target)
        run = Run(event[3], event[0], self._env, read, self._surroundings, origin=origin)
        if self._ahead is None:
            code, error = self._execute(target, run)
        else:
            code, error = self._run_ahead(self._ahead, target, event, run)
        return self._settle(target, event, run, code, error)

    def _bury_dead(self, target: Target, event: WireEvent) -> HandlerResult:
        """Add a dead letter for an event whose handler the module does not export.

        The answer to the sender has the wording of the original node.
        """
        metrics.add(metrics.RUN_FAILURES["not_exported"])
        reason = f"the module exports no handler {target.handler} ({NOT_EXPORTED})"
        self._log(target, event[2], [(LOG_ERROR, SOURCE_TASK, reason)])
        self._bury(target, event, reason)
        return target.instance_id, FAILED, NOT_EXPORTED

    def _run_ahead(
        self, ahead: Ahead, target: Target, event: WireEvent, run: Run
    ) -> tuple[int, str]:
        """Take a shard's speculative result if it is valid, else run the handler here."""
        self.busy_since = 0.0  # `Shards.finding` has its own time limit for a shard
        done = ahead.result(event, target, run)
        if done is None:
            self.busy_since, began = time.monotonic(), time.thread_time()
            done = self._execute(target, run)
            ahead.ran_here(time.thread_time() - began)
        return done

    def _targets(self, event: WireEvent) -> Sequence[Target]:
        """The handlers of an event."""
        if event[5] & EXACT:
            return self._routes.get(event[0], ())
        return match(self._routes, event[0])

    def _shardable(self, event: WireEvent) -> Sequence[Target]:
        """Return the handlers of an event if all of them may run in a shard, else none.

        Duplicates and refused events are not recognised here, but when their turn comes.
        """
        if event[1] == NODE_COMMAND or event[5] & POISON:
            return ()
        targets = self._targets(event)
        applets = self._applets
        if all(
            t.started and not t.dead and applets[t.applet_id].isolation == PER_EVENT
            for t in targets
        ):
            return targets
        return ()

    def _execute(self, target: Target, run: Run) -> tuple[int, str]:
        """Run a handler; see `Host.run`. A module that cannot be loaded counts as its failure."""
        try:
            host = self._host(target.applet_id)
            if host.uses_sql and self._sql is not None:
                return self._run_with_sql(self._sql, host, target.handler, run)
            return host.run(target.handler, run)
        except ModuleRefusedError as refused:
            return FAILED, str(refused)
        except BaseException:
            run.effects.clear()
            raise

    def _run_with_sql(
        self, database: ProjectDatabase, host: Host, handler: str, run: Run
    ) -> tuple[int, str]:
        """Run a handler with SQL; its statements are kept if it succeeds and undone if not."""
        run.sql = database
        error: str | None = None
        before = database.written_bytes
        database.begin_event()
        try:
            code, error = host.run(handler, run)
        finally:
            if error == "":
                database.keep_event()
            else:
                database.undo_event()
        self._written += database.written_bytes - before
        return code, error

    def _host(self, applet_id: int) -> Host:
        host = self._hosts.get(applet_id)
        if host is None:
            since = self.busy_since
            self._enter("load")  # loading may compile the module, which can exceed a deadline
            try:
                host = self._hosts[applet_id] = self._pool.host(self._applets[applet_id])
            except ModuleRefusedError as error:
                self._unreadable.add(applet_id)
                self.health.raise_(MODULE_UNREADABLE, str(error))
                raise
            finally:
                self._enter("")
                self.busy_since = time.monotonic() if since else 0.0
            self._readable(applet_id)
        return host

    def _settle(
        self, target: Target, event: WireEvent, run: Run, code: int, error: str
    ) -> HandlerResult:
        if error:
            run.effects.clear()
            unreadable = target.applet_id in self._unreadable
            metrics.add(metrics.RUN_FAILURES["module" if unreadable else failure_class(error)])
            if error.startswith(DEADLINE):
                self._overrun = f"applet {target.applet_name}, {target.handler}: {error}"
            run.logs.append((LOG_ERROR, SOURCE_TASK, f"{target.handler}: {error}"))
            self._bury(target, event, error)
        else:
            self._keep(target, event[2], run)
        if run.logs:
            self._log(target, event[2], run.logs)
        return target.instance_id, code, error

    def _bury(self, target: Target, event: WireEvent, reason: str) -> None:
        """Add a dead letter for an event whose handler failed."""
        event_type, publisher_id, event_id, payload, received_at, _, _ = event
        self._written += len(payload)
        self._store.dead_letters.append(
            DeadLetter(
                time_ms=clock.now_ms(),
                event_id=event_id,
                event_type=event_type,
                publisher_id=publisher_id,
                payload=payload,
                received_at=received_at,
                strategy_id=target.strategy_id,
                applet_id=target.applet_id,
                applet_name=target.applet_name,
                handler=target.handler,
                reason=reason,
                attempts=_attempt(event_id),
            )
        )

    def _bury_unrun(self, targets: Sequence[Target], event: WireEvent) -> Outcome:
        """Add a dead letter for each handler of a poison event, without running it."""
        for target in targets:
            metrics.add(metrics.RUN_FAILURES["process_died"])
            self._bury(target, event, DEADLY)
        result = tuple((target.instance_id, FAILED, DEADLY) for target in targets)
        self._remember(event, result)
        return result

    def _obey(self, event: WireEvent) -> EventResult:
        """Carry out a command of the node; its payload holds the numbers of its objects."""
        numbers: Sequence[int] = unpack(event[3])
        if self._closed is not None and event[0] in (REPLAY, REPLAY_EVENTS):
            return to_wire(self._closed)
        try:
            if event[0] == REPLAY:
                return tuple(self._replay(number) for number in numbers)
            if event[0] == REPLAY_EVENTS:
                pairs = zip(numbers[::2], numbers[1::2], strict=True)
                return tuple(self._replay_event(place, attempt) for place, attempt in pairs)
            if event[0] == CLEAR_LOG:
                for number in numbers:
                    self._store.clear_log(number)
            else:
                self._store.resolved.extend(numbers)
            return ()
        except StoreError as error:
            return to_wire(client_error(error))

    def _replay(self, number: int) -> HandlerResult:
        """Run one handler again over its dead letter.

        The dead letter is removed even if the run fails: a failed run adds a new one. Without
        its strategy there is no run, and the dead letter stays.
        """
        letter = self._store.dead_letter(number)
        if letter is None or number in self._store.resolved:
            return 0, FAILED, NO_LETTER
        target = find_target(self._routes, letter.strategy_id)
        if target is None:
            return 0, FAILED, NO_STRATEGY
        self._store.resolved.append(number)
        self.busy_since = time.monotonic()
        origin = letter.event_id.partition("#r")[0]
        event_id = f"{origin}#r{letter.attempts}"
        event = (
            letter.event_type,
            letter.publisher_id,
            event_id,
            letter.payload,
            letter.received_at,
            0,
            f"letter {number}",
        )
        result = self._run(target, event)
        ways = ((target.strategy_id, target.applet_id, target.version),)
        self._store.record([event_record(event, clock.now_ms(), (result,), 0, ways)])
        return result

    def _replay_event(self, place: int, attempt: int) -> HandlerResult:
        """Run all handlers again over an event of the history, under its publisher."""
        found = self._store.replayable(place)
        if found is None:
            return 0, FAILED, NOT_KEPT
        record, payload = found
        targets = match(self._routes, record.event_type)
        if not targets:
            return 0, FAILED, NO_MATCH
        event_id = f"{record.event_id}#r{attempt}"
        event = (
            record.event_type,
            record.publisher_id,
            event_id,
            payload,
            record.received_at,
            0,
            f"place {place} {attempt}",
        )
        results = []
        for target in targets:
            self.busy_since = time.monotonic()
            results.append(self._run(target, event))
        ways = tuple((t.strategy_id, t.applet_id, t.version) for t in targets)
        self._store.record(
            [event_record(event, clock.now_ms(), tuple(results), record.flags, ways)]
        )
        reason = next((reason for _, _, reason in results if reason), "")
        return len(targets), FAILED if reason else 0, reason

    def _keep(self, target: Target, event_id: str, run: Run) -> None:
        """Add the writes and effects of a successful run to the batch."""
        if run.writes:
            scope, overlay = self._scopes[target.applet_id], self._store.overlay
            for key, value in run.writes.items():
                overlay[kv.stored_key(scope, key)] = value
                self._written += len(value)
        for effect in run.effects:
            self._take(effect, target, event_id)

    def _take(self, effect: Effect, target: Target, event_id: str) -> None:
        now, store = clock.now_ms(), self._store
        applet, instance_id = target.applet_name, target.instance_id
        match effect:
            case Message(topic=topic, payload=payload):
                self._written += len(payload)
                store.sent.append(
                    OutboxEntry(MQTT, topic, payload, event_id, applet, instance_id, now)
                )
            case ApiCall(event_type=event_type, request=request):
                self._written += len(request)
                store.sent.append(
                    OutboxEntry(API, event_type, request, event_id, applet, instance_id, now)
                )
            case Transaction(chain=chain, key=key, body=body):
                self._written += len(body)
                store.sent.append(
                    OutboxEntry(chain, key.hex(), body, event_id, applet, instance_id, now)
                )
            case Metric(value=value):
                store.metrics.append(MetricRow(now, instance_id, applet, event_id, value))

    def _log(self, target: Target, event_id: str, rows: list[tuple[int, str, str]]) -> None:
        now = clock.now_ms()
        for level, source, text in rows:
            self._store.log(
                LogRow(now, level, source, target.instance_id, target.applet_name, event_id, text)
            )

    def _record(self, batch: Batch) -> int:
        """Add a batch's events to the event history, and return their number."""
        count = 0
        now = clock.now_ms()
        again, known_ways = self._again, self._ways
        for _, part, events, first in batch:
            records, payloads = [], []
            for event, result in zip(events[first:] if first else events, part, strict=False):
                if event[1] == NODE_COMMAND or (result and result[0] in _NOT_KEPT):
                    # Refused events must not push handled ones out of the history. The gateway
                    # keeps some of the refused events, and counts the others.
                    continue
                flags = event[5] & SOURCE_BITS
                ways = known_ways.get(event[0])
                if ways is None or event[5] & EXACT:
                    ways = self._ways_of(event)
                if again and id(event) in again:
                    flags, ways = flags | DUPLICATE, ()
                records.append(event_record(event, now, result, flags, ways))
                payloads.append(event[3])
            self._store.record(records, payloads)
            count += len(records)
        if again:
            metrics.add(metrics.PROJECT_AGAIN, len(again))
            _mark_repeated(batch, again)
            again.clear()
        return count

    def _ways_of(self, event: WireEvent) -> tuple[tuple[int, int, int], ...]:
        """Return (strategy, applet, version) for each handler of an event; cached by event type."""
        ways = tuple((t.strategy_id, t.applet_id, t.version) for t in self._targets(event))
        if len(self._ways) < _WAYS_REMEMBERED and not event[5] & EXACT:
            self._ways[event[0]] = ways
        return ways

    def _finish(self, batch: Batch) -> None:
        self._enter("commit")
        written, self._written = self._written, 0
        for key, value in self._traffic.take_changes().items():
            self._store.overlay[kv.stored_key(self._node_scope, key)] = value
        events = self._record(batch)
        leases: dict[str, list[bytes]] | None = _leases(self._store.sent) if self._chains else {}
        if batch:
            fault_points.hit("project.commits")
        wrote = events or self._store.dead_letters or self._store.sent
        tally = self._tally(events) if wrote else ()
        began = time.monotonic()
        try:
            self._store.commit(self._sql)
            if events:
                metrics.COMMIT_SECONDS.observe(time.monotonic() - began)
            for column, number in tally:
                metrics.here.row[column] += number
        except StoreError as error:
            metrics.add(metrics.COMMITS_FAILED)
            self._traffic.roll_back()
            leases = None
            refused = self._refusal(error, batch, written)
            if isinstance(refused, StoreError):
                for connection, _, part_events, _ in batch:
                    self._hold_back(connection, part_events)
            refusal = to_wire(refused)
            batch = [
                (connection, [refusal] * len(part), events, at)
                for connection, part, events, at in batch
            ]
        self._enter("answer")
        if batch:
            fault_points.hit("project.committed")
        for connection, part, _, _ in batch:
            if part:
                connection.answer(part)
        if batch:
            fault_points.hit("project.answered")
        if self._chains:
            self._chains.settle(leases)
        self._enter("")
        if self.health.has_conditions:
            self._watch.look_again()
        self.tell_of_outbox()

    def _refusal(self, error: StoreError, batch: Batch, written: int) -> NodeError:
        """Return the error that answers the events of a batch that could not be stored."""
        if isinstance(error, BatchTooLargeError):
            # An event that is too large alone must not be sent again. In a batch of several each
            # may be small enough, so the sender may retry.
            alone = sum(len(part) for _, part, _, _ in batch) == 1
            return EffectsTooLargeError(**error.details) if alone else error
        self._watch.failed(error, written)
        return client_error(error)

    def _tally(self, events: int) -> list[tuple[int, int]]:
        """Return the metrics of a batch, to be added after its commit: columns and numbers."""
        store = self._store
        tally = [(metrics.BATCHES, 1), (metrics.PROJECT_EVENTS, events)]
        if store.dead_letters:
            tally.append((metrics.LETTERS_WRITTEN, len(store.dead_letters)))
        if store.metrics:
            tally.append((metrics.MEASURED, len(store.metrics)))
        if store.sent:
            kinds = Counter(metrics.effect_kind(entry.kind) for entry in store.sent)
            tally += [(metrics.SENT[kind], number) for kind, number in kinds.items()]
        return tally

    def measure(self, now: float) -> None:
        """Update the gauges of the store and the shards, once a second at most."""
        if now < self._measured + _MEASURE_S:
            return
        self._measured = now
        store = self._store
        metrics.put(metrics.DEAD_STRATEGIES, count_dead(self._routes))
        metrics.put(metrics.LETTERS, store.dead_letter_count)
        metrics.put(metrics.OUTBOX_ENTRIES, len(store.outbox))
        metrics.put(metrics.OUTBOX_BYTES, store.outbox.bytes)
        metrics.put(metrics.STORE_USED, store.used_bytes)
        if self._shards is not None:
            metrics.put(metrics.SHARDS, len(self._shards.pids))

    def tell_of_outbox(self) -> None:
        """Notify the supervisor, once per taker, that outbox entries wait for delivery."""
        if not len(self._store.outbox):
            return
        for taker in self._store.outbox.takers - self.told:
            self.told.add(taker)
            self._tell(taker)

    def _give_outbox(self, connection: Connection, request: dict[str, Any]) -> None:
        """Answer a request for outbox entries, after removing those that it reports as done.

        A taker leaves `told` when no entry of its kind is left.
        """
        if HELLO in request:
            self._say_hello(connection, request[HELLO])
            return
        outbox, taker = self._store.outbox, request.get(TAKER, "")
        delivered = request.get(DONE, ())
        try:
            if delivered:
                fault_points.hit("project.removes")
            outbox.remove(delivered, request.get(REFUSED, {}))
            if delivered:
                fault_points.hit("project.removed")
            entries = outbox.first(min(request[TAKE], TAKE_LIMIT), request[AFTER], taker)
        except StoreError as error:
            self._watch.failed(error)
            entries = []
        self.told &= outbox.takers
        if entries:
            fault_points.hit("project.gives")
        connection.answer(
            [(n, entry.kind, entry.target, entry.body, entry.event_id) for n, entry in entries]
        )

    def _say_hello(self, connection: Connection, part: str) -> None:
        """Answer a chain's question which nonce leases are in use."""
        try:
            connection.answer(self._chains.hello(part) if self._chains else None)
        except StoreError as error:
            log.error("project %d: outbox: %s", self._project_id, error)
            connection.answer(None)

    @property
    def has_outbox(self) -> bool:
        """Whether outbox entries wait for delivery."""
        return len(self._store.outbox) > 0


def _origin(event: WireEvent, target: Target) -> Origin:
    """Return the origin of a run, from which the keys of its transactions are made."""
    return event, target.strategy_id


def _leases(sent: Sequence[OutboxEntry]) -> dict[str, list[bytes]]:
    """Return the keys of the transactions that a batch has sent, by chain."""
    leases: dict[str, list[bytes]] = {}
    for entry in sent:
        if entry.kind.startswith(TRANSACTIONS):
            leases.setdefault(entry.kind, []).append(bytes.fromhex(entry.target))
    return leases


_BUDGETS = {
    "host call": "host_calls",
    "log": "log",
    "key-value": "key_value",
    "data": "data",
    "effects": "effects",
}


def _why_closed(registry: RegistrySnapshot, project_id: int) -> NodeError | None:
    """Return the reason why a project takes no events at all, or None.

    Gateways already refuse the events of devices. This check is for cron jobs, chains and
    replays, which have no token that a gateway could check.
    """
    project = registry.project(project_id)
    account = None if project is None else registry.account(project.account_id)
    if account is None:
        return None
    if account.state != ENABLED:
        return DisabledAccountError(account=account.account_id)
    if account.over_storage:
        return StorageQuotaError(account=account.username)
    return None


def failure_class(reason: str) -> str:
    """Return the class of a failed run's reason, as the metrics name it."""
    if reason.startswith(DEADLINE):
        return "deadline"
    budget, of, _ = reason.partition(" budget of ")
    if of and budget in _BUDGETS:
        return _BUDGETS[budget]
    if reason.startswith("wasm trap"):
        return "trap"
    return "other"


def _mark_repeated(batch: Batch, repeated: set[int]) -> None:
    """Mark the results of duplicate events, so that the gateway can tell them from new ones."""
    for _, part, events, first in batch:
        for at, result in enumerate(part):
            if id(events[first + at]) in repeated:
                part[at] = (REPEATED, result)


def _events_of(frames: Sequence[tuple[Connection, Any]]) -> list[WireEvent]:
    """Return all events of a round, in order."""
    return [event for _, events in frames if not isinstance(events, dict) for event in events]


def _count(frames: Sequence[tuple[Connection, Any]]) -> int:
    """Return the number of events in a round."""
    return sum(len(events) for _, events in frames if not isinstance(events, dict))


def _attempt(event_id: str) -> int:
    """Return the number of the attempt that an event's id names: 3 for `<id>#r2`."""
    return replay_of(event_id)[1] + 1
