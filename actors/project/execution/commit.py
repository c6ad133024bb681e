"""Prepares a batch of events for its commit, and answers its events afterwards."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from fieldbrook.actors.project.chains import ProjectChains
from fieldbrook.actors.project.configuration import NO_CONFIGURATION, ProjectConfiguration
from fieldbrook.actors.project.execution.activity import Activity
from fieldbrook.actors.project.execution.mqtt_order import MqttOrder
from fieldbrook.actors.project.execution.runner import HandlerRunner
from fieldbrook.actors.project.execution.spans import CommitSpans
from fieldbrook.actors.project.routing import Target
from fieldbrook.actors.project.traffic import TrafficGate
from fieldbrook.actors.store_watch import StoreWatch
from fieldbrook.actors.wire import (
    EXACT,
    NODE_COMMAND,
    REPEATED,
    SOURCE_BITS,
    EventResult,
    Requester,
    WireEvent,
)
from fieldbrook.core import clock
from fieldbrook.core.errors import (
    BatchTooLargeError,
    DisabledAccountError,
    EffectsTooLargeError,
    NodeError,
    StorageQuotaError,
    StoreError,
    TrafficLimitExceededError,
    to_wire,
)
from fieldbrook.observability import fault_points, metrics
from fieldbrook.storage.lmdb.condition import client_error
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.history.records import DUPLICATE, TRACED, RecordTuple, event_record
from fieldbrook.storage.project.outbox import TRANSACTIONS, OutboxEntry
from fieldbrook.storage.project.store import ProjectStore

Batch = list[tuple[Requester, list[EventResult], Sequence[WireEvent], int]]
"""The frames of a batch: the connection to answer, the results so far, the events of the frame,
and the index of the first event that belongs to this batch."""

Handlers = tuple[tuple[int, int, int], ...]
"""Strategy id, applet id and version of each handler of an event, as the history stores them."""

_EVENT_TYPES_CACHED = 1_024
_NODE = 0  # the scope id of the node's own keys; no applet has this id
NODE_SCOPE = kv.scope(_NODE)

_UNRECORDED = frozenset(
    error.__name__ for error in (TrafficLimitExceededError, DisabledAccountError, StorageQuotaError)
)


class BatchCommitter:
    """Commits the batches of one project: the writes and effects of runs, counts, the history.

    Each batch is first prepared. Then the worker syncs its journal, once for the batches of several
    projects. Then the batch is finished.

    Args:
        store: the project's store.
        runner: gives access to the SQL database and to the size of the batch.
        traffic: the counts of the traffic limit, which are stored with the batch.
        order: refuses later MQTT messages after one that could not be stored.
        watch: where failures of the store are reported.
        chains: the connection to the chains; None when the node has none.
        activity: the committer writes its current step there.
        spans: the spans of commits; None when no event is traced.
    """

    def __init__(
        self,
        store: ProjectStore,
        runner: HandlerRunner,
        traffic: TrafficGate,
        order: MqttOrder,
        watch: StoreWatch,
        chains: ProjectChains | None,
        activity: Activity,
        spans: CommitSpans | None = None,
    ) -> None:
        self._spans = spans
        self._store = store
        self._runner = runner
        self._traffic = traffic
        self._order = order
        self._watch = watch
        self._chains = chains
        self._activity = activity
        self._configuration = NO_CONFIGURATION
        self._handlers: dict[str, Handlers] = {}  # by event type
        self.duplicates: set[int] = set()  # the duplicate events of this batch, by `id()`
        self.has_unwritten = False  # whether `write_prepared` has to come next
        self.batch: Batch = []  # between `prepare` and `finish`; its values:
        self._written = 0
        self._counts: list[tuple[int, int]] = []
        self._leases: dict[str, list[bytes]] | None = None
        self._began = 0.0

    def configure(self, configuration: ProjectConfiguration) -> None:
        """Use another configuration."""
        self._configuration = configuration
        self._handlers.clear()

    def prepare(self, batch: Batch) -> None:
        """Prepare the commit of a batch; call `finish` after the journal's sync."""
        runner = self._runner
        self._activity.enter("commit")
        self._written, runner.written_bytes = runner.written_bytes, 0
        if self._spans is not None:
            self._spans.begin(batch)
        for key, value in self._traffic.pop_changes().items():
            self._store.overlay[kv.stored_key(NODE_SCOPE, key)] = value
        events = self._record(batch)
        self.batch = batch
        self._leases = leases_of(self._store.sent) if self._chains else {}
        if batch:
            fault_points.hit("project.before_commit")
        wrote = events or self._store.dead_letters or self._store.sent
        self._counts = self._count(events) if wrote else []
        self._began = time.monotonic()
        try:
            self._store.prepare(runner.database)
        except StoreError as error:
            self._roll_back(error)

    def write_prepared(self) -> None:
        """Commit the prepared batch in the store, because the journal has no room for it.

        The store needs one or two syncs for that. Other projects would wait for them in `finish`,
        but not in a turn: its thread can give up the execution lock. Therefore call this in a turn.
        """
        self._activity.enter("commit")
        self.has_unwritten = False
        try:
            self._store.write_prepared()
        except StoreError as error:
            self._roll_back(error)

    def finish(self, *, full: bool = False) -> None:
        """Answer the events of the prepared batch.

        When the journal is `full`, they are answered after `write_prepared`.
        """
        if full:
            self.has_unwritten = True
            return
        self._store.committed()
        counts, self._counts = self._counts, []
        if counts:
            metrics.COMMIT_SECONDS.observe(time.monotonic() - self._began)
        for column, number in counts:
            metrics.here.row[column] += number
        if self._spans is not None:
            self._spans.end()
        self._activity.enter("answer")
        batch, self.batch = self.batch, []
        if batch:
            fault_points.hit("project.committed")
        for connection, results, _, _ in batch:
            if results:
                connection.answer(results)
        if self._chains:
            self._chains.settle(self._leases)
        self._activity.enter("")

    def _roll_back(self, error: StoreError) -> None:
        """Replace the results of a batch that could not be stored by refusals."""
        metrics.add(metrics.COMMITS_FAILED)
        self._counts, self._leases = [], None
        self._traffic.roll_back()
        if self._spans is not None:
            self._spans.error = str(error)
        batch = self.batch
        refused = self._refusal(error, batch, self._written)
        if isinstance(refused, StoreError):
            for connection, _, events, _ in batch:
                self._order.hold(connection, events)
        refusal = to_wire(refused)
        self.batch = [
            (connection, [refusal] * len(results), events, first)
            for connection, results, events, first in batch
        ]

    def _refusal(self, error: StoreError, batch: Batch, written: int) -> NodeError:
        """Return the error that answers the events of a batch that could not be stored."""
        if isinstance(error, BatchTooLargeError):
            # If the batch has one event, that event is too large, and must not be sent again. In a
            # batch of several events each may be small enough, so their senders may retry.
            alone = sum(len(results) for _, results, _, _ in batch) == 1
            return EffectsTooLargeError(**error.details) if alone else error
        self._watch.failed(error, written)
        return client_error(error)

    def _count(self, events: int) -> list[tuple[int, int]]:
        """Return the counts that a batch adds to the metrics after its commit, by column."""
        store = self._store
        counts = [(metrics.BATCHES, 1), (metrics.PROJECT_EVENTS, events)]
        if store.dead_letters:
            counts.append((metrics.DEAD_LETTERS_WRITTEN, len(store.dead_letters)))
        if store.metrics:
            counts.append((metrics.APPLET_METRICS, len(store.metrics)))
        if store.sent:
            kinds = Counter(metrics.effect_kind(entry.kind) for entry in store.sent)
            counts += [(metrics.HANDLER_EFFECTS[kind], number) for kind, number in kinds.items()]
        return counts

    def _record(self, batch: Batch) -> int:
        """Add a batch's events to the event history, and return their number."""
        count = 0
        now = clock.now_ms()
        duplicates, known_handlers = self.duplicates, self._handlers
        tracing = self._runner.tracing
        for _, results, events, first in batch:
            records: list[RecordTuple] = []
            payloads, traces = [], []
            for event, result in zip(events[first:] if first else events, results, strict=False):
                if event[1] == NODE_COMMAND or (result and result[0] in _UNRECORDED):
                    # Refused events must not displace handled events from the history. The gateway
                    # keeps some refused events, and counts all others.
                    continue
                flags = event[5] & SOURCE_BITS
                handlers = known_handlers.get(event[0])
                if handlers is None or event[5] & EXACT:
                    handlers = self._handlers_of(event)
                if duplicates and id(event) in duplicates:
                    flags, handlers = flags | DUPLICATE, ()
                if tracing is not None and (trace := tracing.take(event, len(records))):
                    flags |= TRACED
                    traces.append(trace)
                records.append(event_record(event, now, result, flags, handlers))
                payloads.append(event[3])
            self._store.record(records, payloads, traces)
            count += len(records)
        if duplicates:
            metrics.add(metrics.DUPLICATE_EVENTS, len(duplicates))
            _mark_duplicates(batch, duplicates)
            duplicates.clear()
        if tracing is not None:
            tracing.settle()
            if tracing.is_over:
                self._runner.tracing = None
        return count

    def _handlers_of(self, event: WireEvent) -> Handlers:
        """Return the handlers of an event for the history; cached by event type."""
        handlers = recorded_handlers(self._configuration.targets(event))
        if len(self._handlers) < _EVENT_TYPES_CACHED and not event[5] & EXACT:
            self._handlers[event[0]] = handlers
        return handlers


def recorded_handlers(targets: Sequence[Target]) -> Handlers:
    """Return the handlers of an event as the history stores them."""
    return tuple((t.strategy_id, t.applet_id, t.version) for t in targets)


def _mark_duplicates(batch: Batch, duplicates: set[int]) -> None:
    """Mark the results of duplicate events, so that the gateway can tell them from new ones."""
    for _, results, events, first in batch:
        for at, result in enumerate(results):
            if id(events[first + at]) in duplicates:
                results[at] = (REPEATED, result)


def leases_of(sent: Sequence[OutboxEntry]) -> dict[str, list[bytes]]:
    """Return the keys of the transactions in a batch, by chain."""
    leases: dict[str, list[bytes]] = {}
    for entry in sent:
        if entry.kind.startswith(TRANSACTIONS):
            leases.setdefault(entry.kind, []).append(bytes.fromhex(entry.target))
    return leases
