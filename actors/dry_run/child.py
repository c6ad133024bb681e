"""A dry run, in the child process that `runner` starts with limits.

The child has the WebAssembly engine, the host functions and the capabilities of a worker. It reads
the project's keys in a snapshot of the store, and its SQL tables in a copy. It has no connection to
the project's worker, to a chain or to a broker, and sends nothing.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

import msgspec

from fieldbrook.actors.dry_run.trial import (
    SHOWN_BYTES,
    SHOWN_LIMIT,
    NodeParts,
    Report,
    SentEffect,
    SqlStatement,
    Task,
    Trial,
    Write,
)
from fieldbrook.actors.project.capabilities import (
    NO_OBJECT,
    ProjectCapabilities,
    sends_transaction,
    sent_by_name,
)
from fieldbrook.actors.project.chains import ChainName, chain_named, unknown_chain
from fieldbrook.actors.project.topics import HandlerTopics
from fieldbrook.chain.transaction import TransactionRefusedError, parse_call
from fieldbrook.core import host_calls
from fieldbrook.core.errors import NodeError
from fieldbrook.core.host_calls import Shown
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.reader import ProjectSnapshot
from fieldbrook.storage.project.store import store_path
from fieldbrook.storage.registry.reader import RegistryReader
from fieldbrook.storage.sql.sqlite import files
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.wasm.engine.applet import load_host
from fieldbrook.wasm.engine.engine import engine_tag, make_engine, start_ticker
from fieldbrook.wasm.recording import Recorder, RecordLimits
from fieldbrook.wasm.run import (
    ApiCall,
    Effect,
    EffectRefusedError,
    Host,
    Message,
    Metric,
    Run,
    SqlSession,
    Transaction,
)

_STATEMENTS = RecordLimits(SHOWN_LIMIT, 3 * SHOWN_LIMIT * SHOWN_BYTES, SHOWN_BYTES)
COPIED_BYTES = 64 << 20
"""SQL tables with more bytes are not copied; then the run uses empty tables."""


class _NeverFull:
    """An outbox that is never full, because nothing enters it."""

    is_full = False


class DryCapabilities(ProjectCapabilities):
    """The capabilities of a project, without effects. Transactions are checked but not signed, and
    get a made-up hash; contracts are not called."""

    def __init__(self, topics: HandlerTopics, node: NodeParts) -> None:
        super().__init__(topics, _NeverFull(), node.api_hosts)
        self._names = [ChainName(*chain) for chain in node.chains]
        self._default = node.default_chain
        self.sent = 0

    def send_transaction(
        self, run: Run, chain_id: int | None, operator: str | None, request: bytes
    ) -> Transaction:
        """See `Capabilities.send_transaction`."""
        return self._transaction(chain_named(self._names, chain_id, self._default), request)

    def call_contract(self, run: Run, chain_id: int | None, request: bytes) -> NoReturn:
        """Refuse the call, because the process of a chain answers only projects."""
        chain_named(self._names, chain_id, self._default)
        raise EffectRefusedError("a dry run calls no contracts")

    def api_transaction(
        self, run: Run, method: str, url: str, event_type: str, request: bytes
    ) -> tuple[int, Transaction | str] | None:
        """See `Capabilities.api_transaction`."""
        if not self._names or not sends_transaction(method, url):
            return None
        named = sent_by_name(request)
        if named is None:
            return HTTPStatus.BAD_REQUEST, NO_OBJECT
        chains = [c for c in self._names if named.chain in (c.name, str(c.chain_id))]
        if not chains:
            return HTTPStatus.BAD_REQUEST, unknown_chain(named.chain, self._names)
        try:
            return HTTPStatus.OK, self._transaction(chains[0], named.body)
        except EffectRefusedError as error:
            return HTTPStatus.BAD_REQUEST, str(error)

    def _transaction(self, chain: ChainName, request: bytes) -> Transaction:
        try:
            parse_call(request, sends=True)
        except TransactionRefusedError as error:
            raise EffectRefusedError(str(error)) from None
        self.sent += 1
        made_up = hashlib.sha256(request + self.sent.to_bytes(4, "big"))
        return Transaction(chain.part, b"", f"0x{made_up.hexdigest()}", "", request)


class DryRun:
    """One dry run."""

    def __init__(self, task: Task) -> None:
        self._trial, self._node, self._scratch = task.trial, task.node, Path(task.scratch)
        self._folder = store_path(Path(task.node.projects), task.trial.project_id)
        self._notes: list[str] = []
        self._statements = Recorder(_STATEMENTS)

    def perform(self) -> Report:
        """Run the handler and report.

        Raises:
            NodeError: the module or the store cannot be read.
        """
        trial, node = self._trial, self._node
        host = _load(trial, node)
        read = self._reader()
        registry = RegistryReader(Path(node.registry))
        topics = HandlerTopics(registry, trial.project_id, node.open_topics)
        capabilities = DryCapabilities(topics, node)
        run = Run(trial.payload, trial.event_type, trial.env, read, capabilities)
        session = self._session(host)
        run.memory_bytes = 0
        began = time.perf_counter()
        code, error = host.run(trial.handler, _with_sql(run, session))
        elapsed_us = round((time.perf_counter() - began) * 1e6)
        if capabilities.sent:
            self._notes.append("transactions are not signed: their hashes are made up")
        return Report(
            code=code,
            error=_clean(error),
            logs=[(level, source, _clean(text)) for level, source, text in run.logs],
            writes=[] if error else self._writes(run, read),
            statements=self._sql_statements(error),
            effects=[] if error else self._effects(run.effects),
            elapsed_us=elapsed_us,
            memory_bytes=run.memory_bytes,
            notes=self._notes,
        )

    def _reader(self) -> Callable[[bytes], bytes | None]:
        """Return the function that reads the applet's keys as they were at the last commit."""
        if not self._trial.with_state or not (self._folder / "data.mdb").exists():
            return lambda _key: None
        snapshot, scope = ProjectSnapshot(self._folder), kv.scope(self._trial.owner)
        return lambda key: snapshot.read(kv.stored_key(scope, key))

    def _session(self, host: Host) -> SqlSession | None:
        """The SQL tables: a copy of the project's, or empty ones."""
        config = self._trial.database
        if config is None or not host.uses_sql:
            return None
        copy, source = self._scratch / files.FILE, self._folder / files.FILE
        if self._trial.with_state and not self._node.tables:
            self._notes.append("the SQL tables are empty: those of PostgreSQL are not copied")
        elif self._trial.with_state and files.is_initialized(source):
            if source.stat().st_size > COPIED_BYTES:
                self._notes.append(f"the SQL tables are empty: over {COPIED_BYTES >> 20} MiB")
            else:
                with files.snapshot(source) as tables:
                    tables.copy(copy)
        database = SqliteDatabase(copy, msgspec.json.decode(config), self._node.sql_limits)
        database.begin_event()
        return self._statements.session(database)

    def _writes(self, run: Run, read: Callable[[bytes], bytes | None]) -> list[Write]:
        self._note_omitted(len(run.writes), "keys")
        writes = []
        for key, value in list(run.writes.items())[:SHOWN_LIMIT]:
            before = read(key)
            writes.append(
                Write(_shown(key), None if before is None else _shown(before), _shown(value))
            )
        return writes

    def _sql_statements(self, error: str) -> list[SqlStatement]:
        calls = self._statements.calls
        self._note_omitted(len(calls) + self._statements.omitted, "statements")
        if error and calls:
            self._notes.append("on the node, the statements of a failed run are undone")
        return [
            SqlStatement(
                request=call.subject,
                result=call.result or _shown(b""),
                error=call.error,
                elapsed_us=call.us,
            )
            for call in calls
        ]

    def _effects(self, effects: Sequence[Effect]) -> list[SentEffect]:
        self._note_omitted(len(effects), "effects")
        return [_sent(effect) for effect in effects[:SHOWN_LIMIT]]

    def _note_omitted(self, count: int, what: str) -> None:
        if count > SHOWN_LIMIT:
            self._notes.append(f"{count - SHOWN_LIMIT} more {what} are not shown")


def _shown(data: bytes) -> Shown:
    return host_calls.shown(data, SHOWN_BYTES)


def _clean(text: str) -> str:
    """Return a text without lone surrogates, which JSON may not contain."""
    return text.encode("utf-8", "replace").decode()


def _load(trial: Trial, node: NodeParts) -> Host:
    engine = make_engine(node.limits, slots=1)
    start_ticker(engine)
    folder = Path(node.modules)
    compiled = folder / f"{trial.sha256}.{engine_tag()}.cwasm"
    return load_host(engine, compiled, folder / f"{trial.sha256}.wasm", node.limits)


def _with_sql(run: Run, session: SqlSession | None) -> Run:
    run.sql = session
    return run


def _sent(effect: Effect) -> SentEffect:
    match effect:
        case Message(topic=topic, payload=payload):
            return SentEffect("mqtt", _clean(topic), _shown(payload))
        case ApiCall(event_type=event_type, request=request):
            return SentEffect("api", _clean(event_type), _shown(request))
        case Metric(value=value):
            return SentEffect("metric", "", _shown(value.encode("utf-8", "replace")))
        case Transaction(chain=chain, body=body):
            return SentEffect("transaction", chain, _shown(body))


def main(_arguments: Sequence[str]) -> int:
    """Run one task from standard input and write its report to standard output."""
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Task)
    try:
        report = DryRun(task).perform()
    except (NodeError, OSError) as error:
        sys.stderr.write(str(error))
        return 1
    sys.stdout.buffer.write(msgspec.msgpack.encode(report))
    return 0
