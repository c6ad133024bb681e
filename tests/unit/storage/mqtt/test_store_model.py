"""The MQTT listener's store compared with a model, over restarts and refused commits."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.mqtt import (
    DeleteRetained,
    DeleteSession,
    Dequeue,
    Enqueue,
    MqttStore,
    Operation,
    PutRetained,
    PutSession,
    Release,
    StoredMessage,
    StoredSession,
)

LIMIT = 8 << 20
KEYS = ["a", "b\0c", "k" * 800]
TOPICS = ["t", "a/b", "x" * 600]

messages = st.builds(
    StoredMessage,
    st.sampled_from(TOPICS),
    st.binary(max_size=5_000),
    st.integers(0, 2),
    st.booleans(),
    st.binary(max_size=20),
    st.integers(0, 1 << 50),
)
sequence_numbers = st.integers(0, 20) | st.just((1 << 63) - 1)


class StoreMachine(RuleBasedStateMachine):
    """Applies the same operations to a store and to dictionaries."""

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mqtt-model-"))
        self.store = MqttStore(self.folder / "mqtt", LIMIT)
        self.sessions: dict[str, StoredSession] = {}
        self.queues: dict[int, dict[int, StoredMessage | None]] = {}
        self.retained: dict[str, StoredMessage] = {}
        self.operations: list[Operation] = []
        self.used: set[int] = set()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    # ------------------------------------------------------------ one commit of many operations

    @rule(key=st.sampled_from(KEYS), record=st.binary(max_size=3_000), is_new=st.booleans())
    def put_session(self, key: str, record: bytes, is_new: bool) -> None:
        uid = self.uid_of(key)
        if uid is None or is_new:
            uid = len(self.used) + 1
            self.used.add(uid)
        self.operations.append(PutSession(StoredSession(key, uid, record)))

    def uid_of(self, key: str) -> int | None:
        """Return the uid of a session after the pending operations."""
        uid = self.sessions[key].uid if key in self.sessions else None
        for operation in self.operations:
            match operation:
                case PutSession(session) if session.key == key:
                    uid = session.uid
                case DeleteSession(key=deleted, uid=found) if deleted == key and found == uid:
                    uid = None
        return uid

    @rule(key=st.sampled_from(KEYS), offset=st.integers(0, 2))
    def delete_session(self, key: str, offset: int) -> None:
        uid = self.uid_of(key)
        if uid is not None and uid - offset not in self.others(key):
            self.operations.append(DeleteSession(key, max(uid - offset, 0)))

    @rule(key=st.sampled_from(KEYS), sequence=sequence_numbers, message=messages)
    def enqueue(self, key: str, sequence: int, message: StoredMessage) -> None:
        if (uid := self.uid_of(key)) is not None:
            self.operations.append(Enqueue(uid, sequence, message))

    @rule(key=st.sampled_from(KEYS), sequence=sequence_numbers, released=st.booleans())
    def dequeue(self, key: str, sequence: int, released: bool) -> None:
        if (uid := self.uid_of(key)) is not None:
            kind = Release if released else Dequeue
            self.operations.append(kind(uid, sequence))

    @rule(topic=st.sampled_from(TOPICS), message=st.none() | messages)
    def retain(self, topic: str, message: StoredMessage | None) -> None:
        if message is None:
            self.operations.append(DeleteRetained(topic))
        else:
            same = StoredMessage(topic, message.payload, 1, True, message.properties, 9)
            self.operations.append(PutRetained(topic, same))

    def others(self, key: str) -> set[int | None]:
        return {self.uid_of(other) for other in KEYS if other != key}

    # ------------------------------------------------------------ commits

    @rule(fails=st.sampled_from([False, False, False, True]))
    def commit(self, fails: bool) -> None:
        if fails:
            bad = PutSession(StoredSession("bad", 1 << 60, bytes(1 << 20)))
            with pytest.raises(StoreError):
                self.store.commit([*self.operations, bad])
        else:
            self.store.commit(self.operations)
            for operation in self.operations:
                self.apply(operation)
        self.operations = []

    def apply(self, operation: Operation) -> None:
        match operation:
            case PutSession(session):
                earlier = self.sessions.get(session.key)
                if earlier is not None and earlier.uid != session.uid:
                    self.queues.pop(earlier.uid, None)
                self.sessions[session.key] = session
            case DeleteSession(key, uid):
                if key in self.sessions and self.sessions[key].uid == uid:
                    del self.sessions[key]
                self.queues.pop(uid, None)
            case Enqueue(uid, sequence, message):
                self.queues.setdefault(uid, {})[sequence] = message
            case Dequeue(uid, sequence):
                self.queues.get(uid, {}).pop(sequence, None)
            case Release(uid, sequence):
                if sequence in self.queues.get(uid, {}):
                    self.queues[uid][sequence] = None
            case PutRetained(topic, message):
                self.retained[topic] = message
            case DeleteRetained(topic):
                self.retained.pop(topic, None)

    @rule(sweeps=st.booleans())
    def restart(self, sweeps: bool) -> None:
        """Restart; uncommitted operations are lost."""
        if sweeps:
            while self.store.has_removed:
                self.store.sweep()
        self.store.close()
        self.operations = []
        self.store = MqttStore(self.folder / "mqtt", LIMIT)

    # ------------------------------------------------------------ the same

    @invariant()
    def is_as_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        assert {found.key: found for found in self.store.sessions()} == self.sessions
        assert dict(self.store.retained()) == self.retained
        expected = {uid: rows for uid, rows in self.queues.items() if rows}
        for uid in self.used:
            rows = sorted(expected.get(uid, {}).items())
            assert self.store.queue(uid, -1, 1_000) == rows
            assert self.store.queue(uid, 7, 2) == [row for row in rows if row[0] > 7][:2]
        usage = {
            uid: (
                len(rows),
                sum(row.size for row in rows.values() if row is not None),
                max(rows),
            )
            for uid, rows in expected.items()
        }
        assert self.store.queue_usage() == usage


@pytest.mark.timeout(300)
def test_a_store_has_what_was_committed_and_nothing_else() -> None:
    run_state_machine_as_test(
        StoreMachine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
