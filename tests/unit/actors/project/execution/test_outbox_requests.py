"""Requests for outbox entries, when the store cannot be read or written."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.actors import store_watch
from fieldbrook.actors.project.execution.outbox_requests import OutboxRequests
from fieldbrook.actors.store_watch import StoreWatch
from fieldbrook.actors.wire import AFTER, DONE, LIMIT, NOT_HERE
from fieldbrook.core.errors import StoreError
from fieldbrook.observability.health import ProcessHealth
from fieldbrook.storage.project.outbox import MQTT, OutboxEntry
from fieldbrook.storage.project.store import ProjectStore


class Consumer:
    """A consumer that requests entries."""

    closed = False

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def answer(self, value: Any) -> None:
        self.answers.append(value)


def test_a_consumer_is_told_again_when_a_store_that_failed_has_entries_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_watch, "_PROBE_INTERVAL_S", 0.0)
    with closing(ProjectStore(tmp_path, 1 << 20)) as store:
        told: list[str] = []
        watch = StoreWatch(ProcessHealth(), store)
        requests = OutboxRequests(7, store, watch, None, told.append)
        store.sent.append(OutboxEntry(MQTT, "t", b"m", "e", "a", 1, 0))
        store.commit()
        requests.announce()

        def fail(*_args: object) -> None:
            raise StoreError(reason="the disk is full")

        consumer = Consumer()
        with monkeypatch.context() as failing:
            failing.setattr(store.outbox, "first", fail)
            requests.answer(consumer, {LIMIT: 10, AFTER: 0})
            requests.announce()
        assert (consumer.answers, told) == ([NOT_HERE], [""]), "it would only ask in vain"
        watch.probe()
        requests.announce()
        requests.announce()
        assert told == ["", ""]
        requests.answer(consumer, {LIMIT: 10, AFTER: 0})
        assert [entry[3] for entry in consumer.answers[1]] == [b"m"]


def test_a_consumer_whose_connection_is_lost_is_told_again_and_gets_what_it_did_not_deliver(
    tmp_path: Path,
) -> None:
    with closing(ProjectStore(tmp_path, 1 << 20)) as store:
        told: list[str] = []
        requests = OutboxRequests(7, store, StoreWatch(ProcessHealth(), store), None, told.append)
        store.sent += [OutboxEntry(MQTT, "t", body, "e", "a", 1, 0) for body in (b"m", b"n")]
        store.commit()
        requests.announce()
        first = Consumer()
        requests.answer(first, {LIMIT: 10, AFTER: 0})
        requests.announce()
        assert told == [""], "it fetches entries until there are none"
        first.closed = True
        requests.announce()
        requests.announce()
        assert told == ["", ""]
        delivered = first.answers[0][0][0]
        second = Consumer()
        requests.answer(second, {LIMIT: 10, AFTER: 0, DONE: [delivered]})
        assert [entry[3] for entry in second.answers[0]] == [b"n"]
        requests.answer(second, {LIMIT: 10, AFTER: 0, DONE: [second.answers[0][0][0]]})
        second.closed = True
        requests.announce()
        assert told == ["", ""], "nothing is left"
