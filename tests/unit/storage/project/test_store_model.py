"""A store with a journal, compared with a model: it has all committed data after a crash at any
point."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import lmdb
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from fieldbrook.core import clock
from fieldbrook.core.errors import StoreError
from fieldbrook.storage.journal.memory import MemoryJournal
from fieldbrook.storage.lmdb.new_environment import NEW
from fieldbrook.storage.project.commit import effects
from fieldbrook.storage.project.dead_letters import DeadLetter, NumberedDeadLetter, read_letters
from fieldbrook.storage.project.history.records import event_record
from fieldbrook.storage.project.history.search import EventFilter, find_events
from fieldbrook.storage.project.history.traces import EventTrace
from fieldbrook.storage.project.outbox import MARKER, MQTT, TRANSACTIONS, OutboxEntry, consumer_of
from fieldbrook.storage.project.rows import LogRow, MetricRow
from fieldbrook.storage.project.store import ProjectStore

PROJECT = 7
NOW = 1_700_000_000_000
KEYS = [b"%d" % number for number in range(6)]
NAMES = [f"name {number}" for number in range(6)]
MAP_BYTES = 8 << 20
KINDS = (MQTT, TRANSACTIONS + "1")

ENDS = (
    *("commit", "commit", "commit", "no end yet", "the journal is full"),
    "the journal is found to be full when it is synced",
)
CHECKPOINTS = ("done", "the disk is full")
CRASHES = (
    *("stop", "crash before the sync is finished", "crash after the sync"),
    *("crash after the transaction of a checkpoint", "crash, and in the recovery"),
)


@dataclass
class Model:
    """The required content of a store. Rows are log rows, events of the history and metrics."""

    pairs: dict[bytes, bytes] = field(default_factory=dict)
    outcomes: dict[bytes, Any] = field(default_factory=dict)
    deliveries: set[str] = field(default_factory=set)
    outbox: list[tuple[str, bytes]] = field(default_factory=list)
    letters: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)


@dataclass
class Effects:
    """The effects of one batch, in the model."""

    pairs: dict[bytes, bytes | None] = field(default_factory=dict)
    outcomes: dict[bytes, Any] = field(default_factory=dict)
    deliveries: set[str] = field(default_factory=set)
    outbox: list[tuple[str, bytes]] = field(default_factory=list)
    letters: list[str] = field(default_factory=list)
    resolved: set[str] = field(default_factory=set)
    metrics: list[str] = field(default_factory=list)

    def add_to(self, model: Model) -> None:
        for key, value in self.pairs.items():
            if value is None:
                model.pairs.pop(key, None)
            else:
                model.pairs[key] = value
        model.outcomes |= self.outcomes
        model.deliveries |= self.deliveries
        model.outbox += self.outbox
        model.letters = [x for x in model.letters if x not in self.resolved] + self.letters
        model.metrics += self.metrics

    def __bool__(self) -> bool:
        return any(vars(self).values())


class StoreMachine(RuleBasedStateMachine):
    """Uses a store and a journal like a worker, and a model at the same time."""

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="store-model-"))
        self.journal = MemoryJournal(segment_bytes=1 << 16, segments=3)
        self.path = self.folder / "p"
        self.model = Model()
        self.batch: Effects
        self.pending: list[str]  # rows of events that no batch contains yet
        self.count = 0
        self.seen: dict[int, bytes] = {}  # outbox numbers that a consumer has seen
        self.kept: set[str] = set()  # the events with payloads
        self.traced: set[str] = set()
        self.start()

    def start(self) -> None:
        """Start like a worker that has ended or crashed."""
        self.batch, self.pending = Effects(), []
        self.store = ProjectStore(self.path, MAP_BYTES, journal=self.journal, project_id=PROJECT)
        for project_id, number, batch in self.journal.records():
            if project_id == PROJECT:
                self.store.apply(number, batch)
        self.store.checkpoint()
        self.journal.begin()

    def crash(self, keep: int = 0) -> None:
        """End the process: data that are only in memory are lost."""
        self.drop(self.store)
        self.journal.crash(keep)

    def drop(self, store: ProjectStore) -> None:
        """Close a store's files like the end of its process; data without a sync are lost."""
        store._stored.end_snapshot()
        store._stored.environment.close()
        for path in (self.path / NEW).glob("*"):
            path.write_bytes(b"torn")

    def unique(self) -> str:
        self.count += 1
        return str(self.count)

    def committed(self) -> None:
        if self.batch:
            self.model.rows += self.pending
            self.pending = []
        self.batch.add_to(self.model)
        self.batch = Effects()

    def letters(self) -> list[NumberedDeadLetter]:
        with self.store._stored.begin() as txn:
            table = self.store._tables.dead_letters._database
            return [*read_letters(txn, table, None, 10_000)[0]][::-1]

    # ------------------------------------------------------------ what handlers do

    @rule(
        pairs=st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=2000)),
        names=st.lists(st.sampled_from(NAMES), max_size=2),
        kinds=st.lists(st.sampled_from(KINDS), max_size=2),
        codes=st.lists(st.integers(-1, 3), max_size=2),
        traced=st.booleans(),
        with_payload=st.booleans(),
        end=st.sampled_from(ENDS),
    )
    def handle(
        self,
        pairs: dict[bytes, bytes | None],
        names: list[str],
        kinds: list[str],
        codes: list[int],
        traced: bool,
        with_payload: bool,
        end: str,
    ) -> None:
        """Run handlers with any effects, and commit them in any way."""
        store, batch = self.store, self.batch
        store.overlay |= pairs
        batch.pairs |= pairs
        for name in names:
            outcome = ((9, len(self.pending), ""),)
            store.outcomes[name.encode()] = batch.outcomes[name.encode()] = outcome
            store.deliveries[name] = None
            batch.deliveries.add(name)
        for kind in kinds:
            body = self.unique().encode()
            store.sent.append(OutboxEntry(kind, "to", body, "e", "a", 9, NOW))
            batch.outbox.append((kind, body))
        for code in codes:
            self.record(code, traced=traced, with_payload=with_payload)
        self.end(end)

    def record(self, code: int, *, traced: bool, with_payload: bool) -> None:
        """Handle an event that writes a log row, and a dead letter when its code is -1."""
        name = self.unique()
        reason = "trap" if code < 0 else ""
        self.store.log(LogRow(NOW, 4, "wasmCode", 9, "a", name, name))
        event = ("T", 1, name, name.encode(), NOW, 0, "")
        record = event_record(event, NOW, ((9, code, reason),), 0, ((1, 2, 3),))
        traces = [EventTrace(0, [], int(name))] if traced else []
        self.store.record([record], [name.encode()] if with_payload else [], traces)
        self.pending.append(name)
        if reason:
            letter = DeadLetter(NOW, name, "T", 1, b"p", NOW, 1, 1, "a", "start", reason)
            self.store.dead_letters.append(letter)
            self.batch.letters.append(name)
        if code > 1:
            self.store.metrics.append(MetricRow(NOW, 9, "a", "e", name))
            self.batch.metrics.append(name)
        self.kept |= {name} if with_payload else set()
        self.traced |= {name} if traced else set()

    @rule(data=st.data())
    def resolve(self, data: st.DataObject) -> None:
        letters = self.letters()
        if letters:
            chosen = data.draw(st.sampled_from(letters))
            known = chosen.letter.event_id in self.model.letters
            assert (self.store.dead_letter(chosen.number) is not None) == known
            self.store.resolved.append(chosen.number)
            self.batch.resolved.add(chosen.letter.event_id)
            self.end("commit")

    # ------------------------------------------------------------ what the worker does

    def end(self, how: str) -> None:
        """End a batch in one of `ENDS`."""
        store, journal = self.store, self.journal
        match how:
            case "commit":
                store.commit()
            case "the journal is full":
                journal.full = True
                store.commit()
                journal.full = False
            case "the journal is found to be full when it is synced":
                if store.prepare():
                    journal._waiting.clear()
                    store.write_prepared()
            case _:
                return
        self.committed()

    @rule(how=st.sampled_from(CHECKPOINTS))
    def checkpoint(self, how: str) -> None:
        store = self.store
        if how == "done":
            store.checkpoint()
            self.model.rows += self.pending
            self.pending = []
        elif store._waiting:
            put = store._tables.put

            def fail(*args: Any) -> Any:
                put(*args)
                raise lmdb.DiskError("no space left")

            store._tables.put = fail  # type: ignore[assignment, method-assign]
            with pytest.raises(StoreError, match="disk is full"):
                store._write_waiting()
            store._tables.put = put  # type: ignore[method-assign]

    @rule(how=st.sampled_from(CRASHES))
    def crash_or_stop(self, how: str) -> None:
        store, kept = self.store, 0
        match how:
            case "stop":
                store.close()
                self.model.rows += self.pending
                self.journal.close()
                self.start()
                return
            case "crash before the sync is finished":
                store.prepare()
            case "crash after the sync":
                kept = int(store.prepare())
                if kept:
                    self.committed()
            case "crash after the transaction of a checkpoint":
                if store._waiting:
                    store._stored.apply_at_any_size(store._waiting)
        self.crash(kept)
        if how == "crash, and in the recovery":
            store = ProjectStore(self.path, MAP_BYTES, journal=self.journal, project_id=PROJECT)
            records = [*self.journal.records()]
            for _, number, batch in records[: len(records) // 2]:
                store.apply(number, batch)
            store.checkpoint()
            self.drop(store)
        self.start()

    # ------------------------------------------------------------ what others see

    @rule(kind=st.sampled_from(KINDS), limit=st.integers(0, 3))
    def fetch_from_the_outbox(self, kind: str, limit: int) -> None:
        entries = self.store.outbox.first(limit, 0, consumer_of(kind))
        expected = [body for other, body in self.model.outbox if other == kind]
        assert [entry.body for _, entry in entries] == expected[:limit]
        for number, entry in entries:
            assert self.seen.setdefault(number, entry.body) == entry.body

    @rule(data=st.data())
    def remove_from_the_outbox(self, data: st.DataObject) -> None:
        bodies = {body for _, body in self.model.outbox}
        fetched = [number for number, body in self.seen.items() if body in bodies]
        gone = data.draw(st.sets(st.sampled_from(fetched), min_size=1)) if fetched else set()
        self.store.outbox.remove([*gone])
        bodies = {self.seen[number] for number in gone}
        self.model.outbox = [each for each in self.model.outbox if each[1] not in bodies]

    @invariant()
    def reads_see_every_batch(self) -> None:
        store, model = self.store, self.model
        for key in KEYS:
            expected = self.batch.pairs.get(key, model.pairs.get(key))
            if key in self.batch.pairs:
                expected = self.batch.pairs[key]
            assert store.read(key) == expected
            assert store.read_committed(key) == model.pairs.get(key)
        outcomes = model.outcomes | self.batch.outcomes
        for name in NAMES:
            assert store.outcome_of(name.encode(), clock.now_ms()) == outcomes.get(name.encode())
            assert store.was_delivered(name) == (name in model.deliveries | self.batch.deliveries)
        assert len(store.outbox) == len(model.outbox)
        assert store.outbox.consumers == {consumer_of(kind) for kind, _ in model.outbox}
        assert store.dead_letter_count == len(model.letters)
        marker = (self.path / MARKER).exists()
        assert marker or not model.outbox

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.crash()
        self.start()
        store, model = self.store, self.model
        assert dict(store.pairs()) == model.pairs
        assert [e.body for _, e in store.outbox.first(999)] == [
            body for kind, body in model.outbox if kind == MQTT
        ]
        assert [x.letter.event_id for x in self.letters()] == model.letters
        with store._stored.begin() as txn:
            logs = store._tables.logs.after(txn, 0, 999)
            metrics = store._tables.metrics.after(txn, 0, 999)
            found = find_events(txn, store._tables.history, EventFilter(), 0, 999).rows[::-1]
            for place, event in found:
                kept = store._tables.history.at(txn, place)
                assert kept is not None
                with_payload = event.event_id in self.kept
                assert kept[1] == (event.event_id.encode() if with_payload else None)
                assert store._tables.history.traces is not None
                trace = store._tables.history.traces.at(txn, place)
                assert (trace is not None) == (event.event_id in self.traced)
                assert trace is None or trace.omitted == int(event.event_id)
        assert [row.row.text for row in logs] == model.rows
        assert [row.row.value for row in metrics] == model.metrics
        assert [event.event_id for _, event in found] == model.rows
        store.close()
        shutil.rmtree(self.folder)


def test_a_store_has_what_was_committed_wherever_checkpoints_and_crashes_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effects, "_LOG_FLUSH_S", float("inf"))
    run_state_machine_as_test(
        StoreMachine, settings=settings(max_examples=50, stateful_step_count=40, deadline=None)
    )
