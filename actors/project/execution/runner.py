"""Runs one handler over one event, and adds its effects to the batch of the store."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from fieldbrook.actors.project.capabilities import ProjectCapabilities
from fieldbrook.actors.project.chains import Origin
from fieldbrook.actors.project.configuration import NO_CONFIGURATION, ProjectConfiguration
from fieldbrook.actors.project.execution.activity import Activity
from fieldbrook.actors.project.execution.tracing import Tracing
from fieldbrook.actors.project.look_ahead.speculation import Speculation
from fieldbrook.actors.project.pool import InstancePool
from fieldbrook.actors.project.routing import Target
from fieldbrook.actors.wire import HandlerResult, WireEvent
from fieldbrook.core import clock
from fieldbrook.core.errors import ChainUnavailableError, ModuleRefusedError
from fieldbrook.observability import metrics
from fieldbrook.observability.health import MODULE_UNREADABLE, ProcessHealth
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.dead_letters import DeadLetter
from fieldbrook.storage.project.deduplication import Outcome
from fieldbrook.storage.project.history.records import replay_of
from fieldbrook.storage.project.outbox import API, MQTT, OutboxEntry
from fieldbrook.storage.project.rows import LogRow, MetricRow
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.sql.database import ProjectDatabase
from fieldbrook.wasm.limits import DEADLINE
from fieldbrook.wasm.module.abi import LOG_ERROR, NOT_EXPORTED, SOURCE_HOST, SOURCE_TASK
from fieldbrook.wasm.run import (
    ApiCall,
    Effect,
    Host,
    Message,
    Metric,
    Run,
    SqlSession,
    Transaction,
)

FAILED = -1
NOT_RUNNING = "instance not running"
PROCESS_DIED = "the project's process died on this event twice"

_BUDGETS = {
    "host call": "host_calls",
    "log": "log",
    "key-value": "key_value",
    "data": "data",
    "effects": "effects",
}


class Mark(NamedTuple):
    """The content of a batch at one time: all writes, and the numbers of other effects."""

    overlay: dict[bytes, bytes | None]
    sent: int
    metrics: int
    dead_letters: int
    written_bytes: int


OpenDatabase = Callable[[Mapping[str, Any]], ProjectDatabase]


class HandlerRunner:
    """Runs the handlers of one project.

    The writes and effects of a successful run, the dead letter of a failed run, and the log rows of
    both go into the store's batch, which `BatchCommitter` commits.

    Args:
        store: the project's store.
        pool: the instance pool.
        capabilities: what handlers may use outside of the project.
        open_database: opens the SQL database for a configuration.
        health: where health conditions are reported.
        activity: the runner writes its current step there.
    """

    def __init__(
        self,
        store: ProjectStore,
        pool: InstancePool,
        capabilities: ProjectCapabilities,
        open_database: OpenDatabase,
        health: ProcessHealth,
        activity: Activity,
    ) -> None:
        self._store = store
        self._pool = pool
        self._capabilities = capabilities
        self._open_database = open_database
        self._health = health
        self._activity = activity
        self._applets = NO_CONFIGURATION.applets
        self._env = NO_CONFIGURATION.env
        self._scopes: dict[int, bytes] = {}
        self._reads: dict[int, Callable[[bytes], bytes | None]] = {}
        self._hosts: dict[int, Host] = {}
        self._unreadable: set[int] = set()  # applets whose module could not be loaded
        self._database_config: bytes | None = None
        self.database: ProjectDatabase | None = None
        self._session: SqlSession | None = None  # the database, as runs use it
        self.speculation: Speculation | None = None  # of the current look-ahead round
        self.written_bytes = 0  # since the last commit
        self.tracing: Tracing | None = None
        self.contexts: dict[int, bytes] = {}  # of the spans of running handlers, by `id(event)`
        self.overrun = ""  # the last handler that was ended at its deadline, and the reason

    def configure(self, configuration: ProjectConfiguration) -> None:
        """Use another configuration; call it between two batches only."""
        applets = configuration.applets
        self._applets, self._env = applets, configuration.env
        self._scopes = {number: kv.scope(kv.owner(applet)) for number, applet in applets.items()}
        self._reads = {number: self.reader(scope) for number, scope in self._scopes.items()}
        self._hosts = {}
        if configuration.database != self._database_config:
            self.close_database()
            self._database_config = configuration.database
            if configuration.database is not None:
                self.database = self._open_database(msgspec.json.decode(configuration.database))
                self._session = _NotedSession(self.database, self._activity)
        self._capabilities.forget()
        self._pool.keep_only(applets.values())

    def close(self) -> None:
        """Close the database and release all modules; uncommitted writes are dropped."""
        self.close_database()
        self._pool.close()

    def close_database(self) -> None:
        """Close the project's database; uncommitted writes are dropped."""
        if self.database is not None:
            self.database.close()
            self.database = self._session = None

    def reader(self, scope: bytes) -> Callable[[bytes], bytes | None]:
        """Return a function that reads keys of a scope, including the writes of the current
        batch."""
        store = self._store
        return lambda key: store.read(kv.stored_key(scope, key))

    def run(self, target: Target, event: WireEvent) -> HandlerResult:
        """Run a handler over an event.

        Raises:
            StoreError: the store failed; this does not count as a failure of the handler.
            ChainUnavailableError: a chain is unavailable, and the project refuses events in this
                case (`ProjectChains.retries`).
        """
        if not target.started:
            metrics.add(metrics.RUN_FAILURES["not_running"])
            self._add_dead_letter(target, event, NOT_RUNNING)
            return target.instance_id, FAILED, NOT_RUNNING
        if target.dead:
            return self._refuse_unexported(target, event)
        run = Run(
            event[3],
            event[0],
            self._env,
            self._reads[target.applet_id],
            self._capabilities,
            origin=(event, target.strategy_id),
        )
        tracing, speculation = self.tracing, self.speculation
        if tracing is not None and tracing.begin(event, target.strategy_id, run, self._session):
            # A speculative run has no host calls to record.
            code, error = self._execute(target, run)
            tracing.end(event, run)
        elif speculation is None:
            code, error = self._execute(target, run)
        else:
            code, error = self._run_speculatively(speculation, target, event, run)
        return self._finish(target, event, run, code, error)

    def run_shared(self, target: Target, events: Sequence[WireEvent]) -> Sequence[Outcome]:
        """Run a handler over several events in one instance.

        Returns:
            The result of each event; an empty sequence if the module cannot be loaded.
        """
        read = self._reads[target.applet_id]
        runs = [
            Run(
                event[3],
                event[0],
                self._env,
                read,
                self._capabilities,
                origin=(event, target.strategy_id),
            )
            for event in events
        ]
        try:
            outcomes = self._host(target.applet_id).run_batch(target.handler, runs)
        except ModuleRefusedError:
            return ()
        return [
            (self._finish(target, event, run, code, error),)
            for event, run, (code, error) in zip(events, runs, outcomes, strict=False)
        ]

    def mark(self) -> Mark:
        """Return the present content of the batch, for `undo`."""
        store = self._store
        counts = len(store.sent), len(store.metrics), len(store.dead_letters)
        return Mark(dict(store.overlay), *counts, self.written_bytes)

    def undo(self, mark: Mark) -> list[OutboxEntry]:
        """Remove from the batch what runs have added since `mark`, except log rows and SQL.

        Returns:
            The effects that they would have sent.
        """
        store = self._store
        store.overlay.clear()
        store.overlay.update(mark.overlay)
        withdrawn = store.sent[mark.sent :]
        del store.sent[mark.sent :], store.metrics[mark.metrics :]
        del store.dead_letters[mark.dead_letters :]
        self.written_bytes = mark.written_bytes
        return withdrawn

    def writes_sql(self, target: Target) -> bool:
        """Return whether a handler may write to the project's database."""
        if self.database is None or not target.started or target.dead:
            return False
        with contextlib.suppress(ModuleRefusedError):
            return self._host(target.applet_id).uses_sql
        return False

    def refuse_poison(self, targets: Sequence[Target], event: WireEvent) -> Outcome:
        """Add a dead letter for each handler of a poison event, without running it."""
        for target in targets:
            metrics.add(metrics.RUN_FAILURES["process_died"])
            self._add_dead_letter(target, event, PROCESS_DIED)
        return tuple((target.instance_id, FAILED, PROCESS_DIED) for target in targets)

    def _refuse_unexported(self, target: Target, event: WireEvent) -> HandlerResult:
        """Add a dead letter for an event whose handler the module does not export.

        The answer to the sender has the same text as W3bstream.
        """
        metrics.add(metrics.RUN_FAILURES["not_exported"])
        reason = f"the module exports no handler {target.handler} ({NOT_EXPORTED})"
        self._log(target, event[2], [(LOG_ERROR, SOURCE_TASK, reason)])
        self._add_dead_letter(target, event, reason)
        return target.instance_id, FAILED, NOT_EXPORTED

    # ---------------------------------------------------------------- the run itself

    def _run_speculatively(
        self, speculation: Speculation, target: Target, event: WireEvent, run: Run
    ) -> tuple[int, str]:
        """Take a speculative result if it is valid, else run the handler here."""
        self._activity.busy_since = 0.0  # `result` has its own limit for waiting
        done = speculation.result(event, target, run)
        if done is None:
            self._activity.busy_since, began = time.monotonic(), time.thread_time()
            done = self._execute(target, run)
            speculation.add_own_run(run, time.thread_time() - began, failed=bool(done[1]))
        return done

    def _execute(self, target: Target, run: Run) -> tuple[int, str]:
        """Run a handler; see `Host.run`. If its module cannot be loaded, the run has failed."""
        try:
            host = self._host(target.applet_id)
            if host.uses_sql and self.database is not None:
                return self._run_with_sql(self.database, host, target.handler, run)
            return host.run(target.handler, run)
        except ModuleRefusedError as refused:
            return FAILED, str(refused)
        except ChainUnavailableError as error:
            event = cast("Origin", run.origin)[0]
            self._log(target, event[2], [*run.logs, (LOG_ERROR, SOURCE_HOST, str(error))])
            run.effects.clear()
            raise
        except BaseException:
            run.effects.clear()
            raise

    def _run_with_sql(
        self, database: ProjectDatabase, host: Host, handler: str, run: Run
    ) -> tuple[int, str]:
        """Run a handler with SQL; its statements are kept if it succeeds and undone if not."""
        run.sql = run.sql or self._session  # a traced run already has its session
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
        self.written_bytes += database.written_bytes - before
        return code, error

    # ---------------------------------------------------------------- modules

    def _host(self, applet_id: int) -> Host:
        host = self._hosts.get(applet_id)
        if host is None:
            activity = self._activity
            since = activity.busy_since
            activity.enter("load")  # loading may compile the module, which can exceed a deadline
            try:
                applet = self._applets[applet_id]
                host = self._hosts[applet_id] = self._pool.host(
                    applet, lambda: activity.enter("load")
                )
            except ModuleRefusedError as error:
                self._unreadable.add(applet_id)
                self._health.raise_(MODULE_UNREADABLE, str(error))
                raise
            finally:
                activity.enter("")
                activity.busy_since = time.monotonic() if since else 0.0
            self._set_readable(applet_id)
        return host

    def retry_unreadable(self) -> None:
        """Try again to load the modules that could not be loaded."""
        for applet_id in list(self._unreadable):
            if applet_id in self._applets:
                with contextlib.suppress(ModuleRefusedError):
                    self._host(applet_id)
            else:
                self._set_readable(applet_id)

    def _set_readable(self, applet_id: int) -> None:
        self._unreadable.discard(applet_id)
        if not self._unreadable:
            self._health.clear(MODULE_UNREADABLE)

    # ---------------------------------------------------------------- what comes of a run

    def _finish(
        self, target: Target, event: WireEvent, run: Run, code: int, error: str
    ) -> HandlerResult:
        """Add the writes and effects of a run to the batch, or a dead letter if the run failed."""
        if error:
            run.effects.clear()
            unreadable = target.applet_id in self._unreadable
            metrics.add(metrics.RUN_FAILURES["module" if unreadable else _failure_class(error)])
            if error.startswith(DEADLINE):
                self.overrun = f"applet {target.applet_name}, {target.handler}: {error}"
            run.logs.append((LOG_ERROR, SOURCE_TASK, f"{target.handler}: {error}"))
            self._add_dead_letter(target, event, error)
        else:
            if run.writes:
                scope, overlay = self._scopes[target.applet_id], self._store.overlay
                for key, value in run.writes.items():
                    overlay[kv.stored_key(scope, key)] = value
                    self.written_bytes += len(value)
            for effect in run.effects:
                self._add_effect(effect, target, event)
        if run.logs:
            self._log(target, event[2], run.logs)
        return target.instance_id, code, error

    def _add_effect(self, effect: Effect, target: Target, event: WireEvent) -> None:
        now, store, event_id = clock.now_ms(), self._store, event[2]
        applet, instance_id = target.applet_name, target.instance_id
        match effect:
            case Metric(value=value):
                store.metrics.append(MetricRow(now, instance_id, applet, event_id, value))
                return
            case Message(topic=to, payload=body):
                kind = MQTT
            case ApiCall(event_type=to, request=body):
                kind = API
            case Transaction(chain=kind, key=key, body=body):
                to = key.hex()
        self.written_bytes += len(body)
        context = self.contexts.get(id(event), b"")
        store.sent.append(OutboxEntry(kind, to, body, event_id, applet, instance_id, now, context))

    def _log(self, target: Target, event_id: str, rows: list[tuple[int, str, str]]) -> None:
        now = clock.now_ms()
        for level, source, text in rows:
            self._store.log(
                LogRow(now, level, source, target.instance_id, target.applet_name, event_id, text)
            )

    def _add_dead_letter(self, target: Target, event: WireEvent, reason: str) -> None:
        event_type, publisher_id, event_id, payload, received_at = event[:5]
        self.written_bytes += len(payload)
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
                attempts=replay_of(event_id)[1] + 1,  # `<id>#r2` names the third attempt
                version=target.version,
            )
        )


class _NotedSession:
    """The project's database, which notes when a run waits for a statement."""

    def __init__(self, database: ProjectDatabase, activity: Activity) -> None:
        self._database = database
        self._activity = activity

    def query(self, request: bytes, ends_at: float) -> bytes:
        """See `SqlSession.query`."""
        self._activity.begin_statement()
        try:
            return self._database.query(request, ends_at)
        finally:
            self._activity.end_statement()

    def execute(self, request: bytes, ends_at: float) -> None:
        """See `SqlSession.execute`."""
        self._activity.begin_statement()
        try:
            self._database.execute(request, ends_at)
        finally:
            self._activity.end_statement()


def _failure_class(reason: str) -> str:
    """Return the class of a failure, as the metrics name it, from the text of its reason."""
    if reason.startswith(DEADLINE):
        return "deadline"
    budget, of, _ = reason.partition(" budget of ")
    if of and budget in _BUDGETS:
        return _BUDGETS[budget]
    if reason.startswith("wasm trap"):
        return "trap"
    return "other"
