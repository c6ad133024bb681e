"""Commands of the node to a project: replay and discard dead letters, replay events, clear logs,
change keys, trace events.

A command is sent as an entry of a list of events, so it runs after the events before it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from fieldbrook.actors.project.chains import ProjectChains
from fieldbrook.actors.project.configuration import NO_CONFIGURATION, ProjectConfiguration
from fieldbrook.actors.project.execution.activity import Activity
from fieldbrook.actors.project.execution.commit import recorded_handlers
from fieldbrook.actors.project.execution.runner import FAILED, HandlerRunner
from fieldbrook.actors.project.execution.tracing import TraceOrder, Tracing
from fieldbrook.actors.project.routing import Target, find_target, match
from fieldbrook.actors.wire import (
    CLEAR_LOG,
    REPLAY,
    REPLAY_EVENTS,
    TRACE,
    WRITE_KEY,
    EventResult,
    HandlerResult,
    WireEvent,
    unpack,
)
from fieldbrook.core import clock
from fieldbrook.core.errors import StorageQuotaError, StoreError, to_wire
from fieldbrook.storage.lmdb.condition import client_error
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.deduplication import Outcome
from fieldbrook.storage.project.history.records import TRACED, event_record
from fieldbrook.storage.project.store import ProjectStore

NO_LETTER = "there is no such dead letter"
NOT_KEPT = "its payload is not kept"
NO_MATCH = "no strategy matches its type"
NO_STRATEGY = "its strategy is gone"


class NodeCommands:
    """Carries out the node's commands to one project."""

    def __init__(
        self,
        store: ProjectStore,
        runner: HandlerRunner,
        activity: Activity,
        chains: ProjectChains | None,
    ) -> None:
        self._store = store
        self._runner = runner
        self._activity = activity
        self._chains = chains
        self._configuration = NO_CONFIGURATION

    def configure(self, configuration: ProjectConfiguration) -> None:
        """Use another configuration."""
        self._configuration = configuration

    def execute(self, event: WireEvent) -> EventResult:
        """Carry out a command; its payload holds the numbers of its objects, or a key.

        If a chain is unavailable, its handlers get an error (`ProjectChains.retries` is off): a
        part of a command cannot be refused and tried again.
        """
        chains = self._chains
        if chains is None:
            return self._execute(event)
        retries, chains.retries = chains.retries, False
        try:
            return self._execute(event)
        finally:
            chains.retries = retries

    def _execute(self, event: WireEvent) -> EventResult:
        command = event[0]
        numbers: Sequence[Any] = unpack(event[3])
        closed = self._configuration.closed
        if closed is not None and command in (REPLAY, REPLAY_EVENTS, TRACE):
            return to_wire(closed)
        try:
            if command == WRITE_KEY:
                return self._write_key(*numbers)
            if command == TRACE:
                self._runner.tracing = Tracing(TraceOrder(*numbers)) if numbers else None
                return ()
            if command == REPLAY:
                return tuple(self._replay_dead_letter(number) for number in numbers)
            if command == REPLAY_EVENTS:
                pairs = zip(numbers[::2], numbers[1::2], strict=True)
                return tuple(self._replay_event(place, attempt) for place, attempt in pairs)
            if command == CLEAR_LOG:
                for number in numbers:
                    self._store.clear_log(number)
            else:
                self._store.resolved.extend(numbers)
            return ()
        except StoreError as error:
            return to_wire(client_error(error))

    def _write_key(self, owner: int, key: bytes, value: bytes | None) -> EventResult:
        """Change or delete a key in the current batch, in the order of the batch's events.

        An account over its storage quota may still delete.
        """
        closed = self._configuration.closed
        if closed is not None and (value is not None or not isinstance(closed, StorageQuotaError)):
            return to_wire(closed)
        stored = kv.stored_key(kv.scope(owner), key)
        known = self._store.read(stored) is not None
        if known or value is not None:
            self._store.overlay[stored] = value
            self._runner.written_bytes += len(key) + len(value or b"")
        return ((0, int(known), ""),)

    def _replay_dead_letter(self, number: int) -> HandlerResult:
        """Run one handler again over its dead letter.

        The dead letter is removed even if the run fails: a failed run adds a new one. Without
        its strategy there is no run, and the dead letter stays.
        """
        letter = self._store.dead_letter(number)
        if letter is None or number in self._store.resolved:
            return 0, FAILED, NO_LETTER
        target = find_target(self._configuration.routes, letter.strategy_id)
        if target is None:
            return 0, FAILED, NO_STRATEGY
        self._store.resolved.append(number)
        event = (
            letter.event_type,
            letter.publisher_id,
            f"{letter.event_id.partition('#r')[0]}#r{letter.attempts}",
            letter.payload,
            letter.received_at,
            0,
            f"letter {number}",
        )
        return self._run((target,), event, 0)[0]

    def _replay_event(self, place: int, attempt: int) -> HandlerResult:
        """Run all handlers again over an event of the history, with the event's publisher."""
        found = self._store.replayable(place)
        if found is None:
            return 0, FAILED, NOT_KEPT
        record, payload = found
        targets = match(self._configuration.routes, record.event_type)
        if not targets:
            return 0, FAILED, NO_MATCH
        event = (
            record.event_type,
            record.publisher_id,
            f"{record.event_id}#r{attempt}",
            payload,
            record.received_at,
            0,
            f"place {place} {attempt}",
        )
        results = self._run(targets, event, record.flags & ~TRACED)
        reason = next((reason for _, _, reason in results if reason), "")
        return len(targets), FAILED if reason else 0, reason

    def _run(self, targets: Sequence[Target], event: WireEvent, flags: int) -> Outcome:
        """Run handlers over an event, and add it to the history."""
        results = []
        for target in targets:
            self._activity.busy_since = time.monotonic()  # each handler has its own deadline
            results.append(self._runner.run(target, event))
        result = tuple(results)
        handlers = recorded_handlers(targets)
        trace = self._runner.tracing.take(event, 0) if self._runner.tracing else None
        if trace is not None:
            flags |= TRACED
        record = event_record(event, clock.now_ms(), result, flags, handlers)
        self._store.record([record], traces=() if trace is None else [trace])
        return result
