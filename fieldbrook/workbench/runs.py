"""Workbench: runs handlers without a node, replays recorded events and compares the results.

The WebAssembly hosts are those of the node. The project around them is minimal: a store in
memory, the given variables, and strategies. MQTT messages, API calls and metrics are shown but
not sent; chains are simulated. Resource ids, time and random numbers come from a seed, so that
the same events always give the same results.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from fieldbrook.actors.project.capabilities import sends_transaction
from fieldbrook.core.errors import MalformedMessageError
from fieldbrook.core.model import DEFAULT_EVENT_TYPE
from fieldbrook.gateway.events.message import decode_message
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.wasm.engine.applet import AppletHost
from fieldbrook.wasm.engine.engine import Engine, make_engine, raw_available
from fieldbrook.wasm.engine.reference import ReferenceHost
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.inspection import compile_module, to_binary
from fieldbrook.wasm.run import Capabilities, Effect, EffectRefusedError, Host, Run, Transaction
from fieldbrook.wasm.seeded import Seeded
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
_BASE64 = "base64:"

Json = dict[str, Any]


class WorkbenchError(Exception):
    """An input file is invalid (the text says which and where), or a replay does not end."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A handler and the event to run it with."""

    handler: str
    payload: bytes
    event_type: str = DEFAULT_EVENT_TYPE


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run.

    `error` is "" when the handler returned a code. Otherwise it is the reason why there is none:
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


class _Desk(Capabilities):
    """The capabilities of one run: all effects are accepted but not sent; chains are simulated."""

    def __init__(self, number: int, seeded: Seeded, chains: SimulatedChains | None) -> None:
        self.seeded = seeded
        self._number = number
        self._chains = chains

    def check_topic(self, topic: str) -> None:
        """Accept every topic, because there is no broker and no other project."""

    def api_refusal(self, method: str, url: str) -> tuple[int, str] | None:
        """Refuse no call; no call is sent."""
        return None

    def send_transaction(
        self, run: Run, chain_id: int | None, operator: str | None, request: bytes
    ) -> Transaction:
        """See `Capabilities.send_transaction`."""
        if self._chains is None:
            raise EffectRefusedError(_no_chain(chain_id))
        return self._chains.send(self._number, chain_id, operator, request)

    def call_contract(self, chain_id: int | None, request: bytes) -> bytes:
        """See `Capabilities.call_contract`."""
        if self._chains is None:
            raise EffectRefusedError(_no_chain(chain_id))
        return self._chains.call(self._number, chain_id, request)

    def api_transaction(
        self, run: Run, method: str, url: str, event_type: str, request: bytes
    ) -> tuple[int, Transaction | str] | None:
        """See `Capabilities.api_transaction`."""
        if self._chains is None or not sends_transaction(method, url):
            return None
        return self._chains.send_by_name(self._number, request, event_type)


def _no_chain(chain_id: int | None) -> str:
    what = "no chain" if chain_id is None else f"chain {chain_id}"
    return f"{what} is {'not ' * (chain_id is not None)}configured (--chain FILE simulates chains)"


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
    ) -> None:
        """Compile and link.

        Args:
            module: WebAssembly, in binary or as text.
            host: one of `HOSTS`: `raw` is the node's fast host, `reference` the plain host that
                defines the correct results, `batch` the fast host with events that share an
                instance. Where `raw_available` is false, all three use the plain host.
            env: the project's variables.
            store: the initial content of the applet's key-value store.
            schema: the tables for SQL, in the form of a project's configuration; None: there is
                no database.
            database: the file of the SQL database; None: a temporary file that `close` deletes.
            limits: the budgets of a run; None: the node's defaults.
            chains: the simulated chains; None: there are none.
            seed: the seed of resource ids and random numbers.
            start: the time of the first run; each further run starts `BETWEEN_RUNS` later.

        Raises:
            ModuleRefusedError: the node would refuse the module too.
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
        self._sql: SqliteDatabase | None = None
        if schema is not None:
            if database is None:
                self._folder = TemporaryDirectory(prefix="fieldbrook-")
                database = Path(self._folder.name) / "sql.db"
            self._sql = SqliteDatabase(
                database,
                schema,
                moment=lambda: datetime.fromtimestamp(self._seeded.unix_ns // 1_000_000_000, UTC),
                draw=lambda bits: self._seeded.bits(bits),
            )
        engine: Engine = make_engine(limits)
        compiled, _ = compile_module(engine, to_binary(module), limits)
        make = AppletHost if host != REFERENCE and raw_available() else ReferenceHost
        self._host: Host = make(engine, compiled, limits, seeded=True)

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
        """Run the trials in order; each run sees the writes of the runs before it."""
        at = 0
        while at < len(trials):
            group = self._group(trials, at)
            settled = self._together(group) if self._batches else []
            yield from settled
            at += len(settled)
            if len(settled) < len(group):
                yield self._alone(trials[at])
                at += 1

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
            f"answers of the chains led to further ones {ROUNDS_LIMIT} times: "
            f"{latest[-1].trial.handler} sends whenever {latest[-1].trial.event_type} comes"
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

    def _group(self, trials: Sequence[Trial], at: int) -> Sequence[Trial]:
        """Return the next trials that can share an instance.

        They are consecutive trials of one handler, or a single trial if the host does not batch.
        """
        if not self._batches:
            return trials[at : at + 1]
        same = takewhile(lambda trial: trial.handler == trials[at].handler, trials[at:])
        return list(islice(same, _BATCH_EVENTS))

    def _run(self, trial: Trial, number: int) -> Run:
        self._seeded = self._seeded_for(number)
        desk = _Desk(number, self._seeded, self._chains)
        return Run(trial.payload, trial.event_type, self._env, self.store.get, desk, self._sql)

    def _seeded_for(self, number: int) -> Seeded:
        between_ns = BETWEEN_RUNS // timedelta(microseconds=1) * 1_000
        return Seeded(self._seed, number, self._start_ns + number * between_ns)

    def _together(self, group: Sequence[Trial]) -> list[Outcome]:
        runs = [self._run(trial, self._number + at) for at, trial in enumerate(group)]
        before = time.perf_counter()
        codes = self._host.run_batch(group[0].handler, runs)
        elapsed_us = (time.perf_counter() - before) * 1e6 / max(1, len(codes))
        return [
            self._outcome(trial, run, code, error, elapsed_us)
            for trial, run, (code, error) in zip(group, runs, codes, strict=False)
        ]

    def _alone(self, trial: Trial) -> Outcome:
        if self._chains is not None:
            self._chains.undo(self._number)  # its transactions and calls in a failed batch
        run = self._run(trial, self._number)
        before = time.perf_counter()
        with self._statements() as failed:
            code, error = self._host.run(trial.handler, run)
            failed.append(error)
        return self._outcome(trial, run, code, error, (time.perf_counter() - before) * 1e6)

    @contextmanager
    def _statements(self) -> Iterator[list[str]]:
        """Wrap one run in a transaction of the SQL database.

        The caller appends the run's error to the list. An empty error commits the run's SQL
        writes; any other error, or an exception, discards them. Only single runs need this,
        because hosts never batch applets that use SQL.
        """
        reasons: list[str] = []
        sql = self._sql
        if sql is None:
            yield reasons
            return
        sql.begin_event()
        try:
            yield reasons
        finally:
            if reasons == [""]:
                sql.keep_event()
            else:
                sql.undo_event()
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


# ---------------------------------------------------------------- events


def read_events(path: Path) -> list[tuple[str, bytes]]:
    """Read recorded events, as (type, payload), from a file with one JSON object per line.

    A line has one of three forms; empty lines are skipped:

    - a data message as devices send it; its publisher and token are not checked;
    - `{"event_type"?, "payload"}`, where the payload is text or another JSON value, which
      becomes compact JSON;
    - `{"event_type"?, "payload_base64"}`.

    Raises:
        WorkbenchError: a line has another form; the text has its number.
        OSError: the file cannot be read.
    """
    events = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            events.append(_event(line))
        except (TypeError, ValueError, MalformedMessageError) as error:
            raise WorkbenchError(f"{path}:{number}: {error}") from None
    return events


def _event(line: bytes) -> tuple[str, bytes]:
    value = _object(line)
    if "header" in value:
        header = value["header"]
        if isinstance(header, dict):
            value = {**value, "header": {"pub_id": "-", "token": "-", **_given(header)}}
        message = decode_message(msgspec.json.encode(value))
        return message.event_type, message.payload
    event_type = value.get("event_type") or DEFAULT_EVENT_TYPE
    if not isinstance(event_type, str):
        raise TypeError("event_type is not a text")
    if isinstance(value.get("payload_base64"), str):
        return event_type, base64.b64decode(value["payload_base64"], validate=True)
    if "payload" not in value:
        raise ValueError("there is no payload")
    payload = value["payload"]
    if isinstance(payload, str):
        return event_type, payload.encode("utf-8", "surrogateescape")
    return event_type, json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


def _given(header: Json) -> Json:
    """Return a header without the publisher and the token that a recording left empty."""
    blank = ("pub_id", "token")
    return {name: value for name, value in header.items() if value or name not in blank}


def _object(line: bytes) -> Json:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value


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


# ---------------------------------------------------------------- results


def describe(outcome: Outcome) -> Json:
    """Return an outcome without its duration, in the form of `--json` and of expectations."""
    return {
        "event_type": outcome.trial.event_type,
        "handler": outcome.trial.handler,
        "code": outcome.code,
        "error": outcome.error,
        "logs": [_log(*record) for record in outcome.logs],
        "writes": to_json(outcome.writes),
        "effects": [_effect(effect) for effect in outcome.effects],
    }


def describe_events(events: Sequence[tuple[str, bytes]]) -> list[Json]:
    """Return events in the form that `--json` prints."""
    return [{"event_type": kind, "payload": _text(payload)} for kind, payload in events]


def _log(level: int, source: str, text: str) -> list[str]:
    own = [] if source == abi.SOURCE_GUEST else [source]
    return [abi.level_name(level), text, *own]


def _effect(effect: Effect) -> Json:
    fields = {
        name: _text(value) if isinstance(value, bytes) else value
        for name, value in effect._asdict().items()
    }
    return {"kind": type(effect).__name__, **fields}


def read_expectations(path: Path) -> list[Json]:
    """Read the expected results of runs, one JSON object per line.

    Raises:
        WorkbenchError: a line is not a JSON object.
        OSError: the file cannot be read.
    """
    expected = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                expected.append(_object(line))
            except (TypeError, ValueError) as error:
                raise WorkbenchError(f"{path}:{number}: {error}") from None
    return expected


def differences(expected: Json, found: Json) -> list[str]:
    """Describe each difference in one text; only fields that the expectation has are compared."""
    return [
        f"{name}: expected {_shown(value)}, found {_shown(found.get(name))}"
        for name, value in expected.items()
        if found.get(name) != value
    ]


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def write_lines(path: Path, values: Sequence[Json]) -> None:
    """Write one line of JSON for each value."""
    path.write_text("".join(f"{_shown(value)}\n" for value in values), "utf-8")


# ---------------------------------------------------------------- stores


def to_json(store: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return keys and values as text.

    Bytes that are not UTF-8, and text that itself starts with `base64:`, become `base64:...`.
    """
    return {_text(key): _text(value) for key, value in sorted(store.items())}


def from_json(value: object) -> dict[bytes, bytes]:
    """The inverse of `to_json`. Raises ValueError for anything else."""
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError("not a JSON object of texts")
    return {_bytes(key): _bytes(text) for key, text in value.items()}


def read_store(path: Path) -> dict[bytes, bytes]:
    """Read a store from a file; without the file the store is empty.

    Raises:
        WorkbenchError: the file is not a store that `write_store` writes.
        OSError: the file cannot be read.
    """
    try:
        return from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise WorkbenchError(f"{path}: {error}") from None


def read_schema(path: Path) -> Json:
    """Read a database configuration from a file.

    Raises:
        WorkbenchError: the file does not hold a JSON object.
        OSError: the file cannot be read.
    """
    try:
        return _object(path.read_bytes())
    except (TypeError, ValueError) as error:
        raise WorkbenchError(f"{path}: {error}") from None


def write_store(path: Path, store: Mapping[bytes, bytes]) -> None:
    """Write a store to a file."""
    text = json.dumps(to_json(store), ensure_ascii=False, indent=2)
    path.write_text(f"{text}\n", "utf-8")


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = _BASE64
    return _BASE64 + base64.b64encode(data).decode() if text.startswith(_BASE64) else text


def _bytes(text: str) -> bytes:
    if text.startswith(_BASE64):
        return base64.b64decode(text.removeprefix(_BASE64), validate=True)
    return text.encode()
