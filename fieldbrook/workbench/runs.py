"""Workbench: runs handlers without a node, replays recorded events and compares the results.

The WebAssembly hosts are those of the node. The project around them is minimal: a store in
memory, the given variables, and strategies. MQTT messages, API calls and metrics are shown but
not sent; chains are simulated. Resource ids, time and random numbers come from a seed, so that
the same events always give the same results.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fieldbrook.core.model import DEFAULT_EVENT_TYPE
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.wasm.engine.applet import AppletHost
from fieldbrook.wasm.engine.engine import Engine, make_engine, raw_available
from fieldbrook.wasm.engine.reference import ReferenceHost
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.inspection import compile_module, to_binary
from fieldbrook.wasm.run import Effect, Host, Run
from fieldbrook.wasm.seeded import Seeded
from fieldbrook.workbench.capabilities import SimulatedCapabilities
from fieldbrook.workbench.files import WorkbenchError
from fieldbrook.workbench.simulated_chain import SimulatedChains

RAW, REFERENCE, BATCH = "raw", "reference", "batch"
HOSTS = (RAW, REFERENCE, BATCH)
DEFAULT_HANDLER = "start"
DEFAULT_SEED = 1
DEFAULT_TIME = datetime(2026, 1, 1, tzinfo=UTC)
BETWEEN_RUNS = timedelta(seconds=1)
ROUNDS_LIMIT = 16
"""Limit of the rounds in `Workbench.replay`; a round runs the events that the last one caused."""
_BATCH_EVENTS = 64


@dataclass(frozen=True, slots=True)
class Trial:
    """A handler and the event to run it with."""

    handler: str
    payload: bytes
    event_type: str = DEFAULT_EVENT_TYPE


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run.

    `error` is "" if the handler returned a code. Otherwise it is the reason why there is no code:
    a trap, an exceeded budget, or a handler that the module does not have. `logs` holds (level,
    source, text). `elapsed_us` is the duration in microseconds, instantiation included; for a
    run in a batch it is an equal share of the batch's duration.
    """

    trial: Trial
    code: int
    error: str
    logs: tuple[tuple[int, str, str], ...]
    writes: Mapping[bytes, bytes]
    effects: tuple[Effect, ...]
    elapsed_us: float

    @property
    def failed(self) -> bool:
        """Whether there is an error or the code is negative, as in `fieldbrook send`."""
        return bool(self.error) or self.code < 0


class Workbench:
    """Runs the handlers of one module over a key-value store.

    `store` receives the writes of every run that ended without an error.
    """

    def __init__(
        self,
        module: bytes,
        *,
        host: str = RAW,
        env: Mapping[str, str] | None = None,
        store: dict[bytes, bytes] | None = None,
        schema: Mapping[str, Any] | None = None,
        database: Path | None = None,
        limits: Limits | None = None,
        chains: SimulatedChains | None = None,
        seed: int = DEFAULT_SEED,
        start: datetime = DEFAULT_TIME,
        lines: bool = False,
    ) -> None:
        """Compile and link.

        Args:
            module: WebAssembly, in binary or as text.
            host: one of `HOSTS`: `raw` is the node's fast host, `reference` the plain host that
                defines the correct results, `batch` the fast host with events that share an
                instance. Where `raw_available` is false, all three use the plain host.
            env: the project's variables.
            store: the initial content of the applet's key-value store.
            schema: the tables for SQL, in the form of a project's configuration; None for no
                database.
            database: the file of the SQL database; None: a temporary file that `close` deletes.
            limits: the budgets of a run; None: the node's defaults.
            chains: the simulated chains; None: there are none.
            seed: the seed of resource ids and random numbers.
            start: the time of the first run; each further run starts `BETWEEN_RUNS` later.
            lines: whether traps name lines of sources, for modules with DWARF sections.

        Raises:
            ModuleRefusedError: a node would refuse the module, too.
        """
        limits = limits or Limits()
        self.store = {} if store is None else store
        self._env = dict(env or {})
        self._batches = host == BATCH
        self._chains = chains
        self._seed = seed
        self._start_ns = round(start.timestamp()) * 1_000_000_000
        self._number = 0  # the number of the next run
        self._seeded = self._seeded_for(0)  # time and random bits for the current run's SQL
        self._folder: TemporaryDirectory[str] | None = None
        self._sql = None if schema is None else self._database(schema, database)
        engine: Engine = make_engine(limits, lines=lines)
        compiled, _ = compile_module(engine, to_binary(module), limits)
        make = AppletHost if host != REFERENCE and raw_available() else ReferenceHost
        self._host: Host = make(engine, compiled, limits, seeded=True)

    def _database(self, schema: Mapping[str, Any], path: Path | None) -> SqliteDatabase:
        if path is None:
            self._folder = TemporaryDirectory(prefix="fieldbrook-")
            path = Path(self._folder.name) / "sql.db"
        return SqliteDatabase(
            path,
            schema,
            moment=lambda: datetime.fromtimestamp(self._seeded.unix_ns // 1_000_000_000, UTC),
            draw=lambda bits: self._seeded.bits(bits),
        )

    @property
    def handlers(self) -> tuple[str, ...]:
        """The names of the module's handlers."""
        return self._host.handlers

    def close(self) -> None:
        """Release the module and the database."""
        self._host.close()
        if self._sql is not None:
            self._sql.close()
        if self._folder is not None:
            self._folder.cleanup()

    def perform(self, trials: Sequence[Trial]) -> Iterator[Outcome]:
        """Run the trials in order; each run sees the writes of earlier runs."""
        index = 0
        while index < len(trials):
            group = self._group(trials, index)
            outcomes = self._run_batch(group) if self._batches else []
            yield from outcomes
            index += len(outcomes)
            if len(outcomes) < len(group):  # a batch ends before its first failing run
                yield self._run_single(trials[index])
                index += 1

    def replay(
        self, trials: Sequence[Trial], strategies: Sequence[tuple[str, str]]
    ) -> list[Outcome]:
        """Run the trials in order, then the events with which the simulated chains answer.

        Answers to those events run in the next round, and so on until a round causes no event.

        Raises:
            WorkbenchError: there are still events after `ROUNDS_LIMIT` rounds.
        """
        latest = list(self.perform(trials))
        outcomes = list(latest)
        for _ in range(ROUNDS_LIMIT):
            latest = list(self.perform(route(self.answers(latest, strategies), strategies)))
            if not latest:
                return outcomes
            outcomes += latest
        raise WorkbenchError(
            f"the replay does not end: after {ROUNDS_LIMIT} rounds of answers from chains, "
            f"{latest[-1].trial.handler} still sends transactions for {latest[-1].trial.event_type}"
        )

    def answers(
        self, outcomes: Sequence[Outcome], strategies: Sequence[tuple[str, str]]
    ) -> list[tuple[str, bytes]]:
        """Return the events that the simulated chains send after runs, as (type, payload)."""
        if self._chains is None:
            return []
        kinds = [kind for kind, _ in strategies]
        chains = self._chains
        return [event for outcome in outcomes for event in chains.answers(outcome.effects, kinds)]

    def _group(self, trials: Sequence[Trial], start: int) -> Sequence[Trial]:
        """Return the next trials that can share an instance.

        They are consecutive trials of one handler, or a single trial if the host does not batch.
        """
        if not self._batches:
            return trials[start : start + 1]
        same = takewhile(lambda trial: trial.handler == trials[start].handler, trials[start:])
        return list(islice(same, _BATCH_EVENTS))

    def _prepare(self, trial: Trial, number: int) -> Run:
        self._seeded = self._seeded_for(number)
        capabilities = SimulatedCapabilities(number, self._seeded, self._chains)
        return Run(
            trial.payload, trial.event_type, self._env, self.store.get, capabilities, self._sql
        )

    def _seeded_for(self, number: int) -> Seeded:
        between_ns = BETWEEN_RUNS // timedelta(microseconds=1) * 1_000
        return Seeded(self._seed, number, self._start_ns + number * between_ns)

    def _run_batch(self, group: Sequence[Trial]) -> list[Outcome]:
        runs = [self._prepare(trial, self._number + n) for n, trial in enumerate(group)]
        before = time.perf_counter()
        codes = self._host.run_batch(group[0].handler, runs)
        elapsed_us = (time.perf_counter() - before) * 1e6 / max(1, len(codes))
        return [
            self._outcome(trial, run, code, error, elapsed_us)
            for trial, run, (code, error) in zip(group, runs, codes, strict=False)
        ]

    def _run_single(self, trial: Trial) -> Outcome:
        if self._chains is not None:
            self._chains.undo(self._number)  # drops what the run sent in a failed batch
        run = self._prepare(trial, self._number)
        before = time.perf_counter()
        code, error = self._run_in_transaction(trial.handler, run)
        return self._outcome(trial, run, code, error, (time.perf_counter() - before) * 1e6)

    def _run_in_transaction(self, handler: str, run: Run) -> tuple[int, str]:
        """Run a handler within a transaction of the SQL database, which an error rolls back.

        Only single runs need this, because hosts never batch applets that use SQL.
        """
        sql = self._sql
        if sql is None:
            return self._host.run(handler, run)
        sql.begin_event()
        error = "the run has not ended"
        try:
            code, error = self._host.run(handler, run)
            return code, error
        finally:
            if error:
                sql.undo_event()
            else:
                sql.keep_event()
            if sql.wrote:
                sql.commit(sql.number() + 1)
            else:
                sql.rollback()

    def _outcome(self, trial: Trial, run: Run, code: int, error: str, elapsed_us: float) -> Outcome:
        if error and self._chains is not None:
            self._chains.undo(self._number)
        self._number += 1
        writes = {} if error else run.writes
        effects = () if error else tuple(run.effects)
        self.store.update(writes)
        return Outcome(trial, code, error, tuple(run.logs), writes, effects, elapsed_us)


def route(
    events: Sequence[tuple[str, bytes]], strategies: Sequence[tuple[str, str]]
) -> list[Trial]:
    """Return the runs that events cause, in order.

    An event runs every handler that a strategy names for its type. If no strategy names the
    type, it runs the handlers for DEFAULT.
    """
    trials = []
    for event_type, payload in events:
        handlers = [handler for kind, handler in strategies if kind == event_type]
        if not handlers:
            handlers = [handler for kind, handler in strategies if kind == DEFAULT_EVENT_TYPE]
        trials += [Trial(handler, payload, event_type) for handler in handlers]
    return trials


def without_strategy(
    events: Sequence[tuple[str, bytes]], strategies: Sequence[tuple[str, str]]
) -> dict[str, int]:
    """Return how many events of each type run no handler, because no strategy names the type."""
    named = {kind for kind, _ in strategies}
    if DEFAULT_EVENT_TYPE in named:
        return {}
    return Counter(event_type for event_type, _ in events if event_type not in named)
