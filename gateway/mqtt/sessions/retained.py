"""The retained messages of all topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec.structs import replace

from fieldbrook.core import clock
from fieldbrook.core.errors import NodeError, TooManyRequestsError
from fieldbrook.gateway.mqtt.protocol.topics import TopicTree
from fieldbrook.gateway.mqtt.sessions.forwarded import pack_properties, unpack_properties
from fieldbrook.gateway.mqtt.sessions.limits import RETAINED_BYTES, Limits
from fieldbrook.gateway.mqtt.sessions.session import Message, to_stored
from fieldbrook.storage.mqtt import DeleteRetained, MqttStore, Operation, PutRetained, StoredMessage


class Write(Protocol):
    """`storage.mqtt.StoreWriter.write`."""

    def __call__(
        self, operations: Sequence[Operation], done: Callable[[NodeError | None], None] | None
    ) -> None:
        """Write operations; `done` is called when they are on disk."""


class Retained:
    """The retained messages, in memory and in the store.

    The `project_id` of a message is the project whose name is the first level of the topic. When
    the project is removed, the message is removed, too, because a later project with this name may
    belong to another account.
    """

    def __init__(self, limits: Limits, store: MqttStore, write: Write) -> None:
        """Load the retained messages of the store."""
        self._expiry_s = limits.retained_expiry_s
        self._write = write
        self._messages: TopicTree[Message] = TopicTree()
        self._shared = limits.shared(limits.retained)
        self._topics: defaultdict[int, set[str]] = defaultdict(set)  # by their projects
        for topic, stored in store.retained():
            self._messages.set(topic, message_of(stored))
            self._shared.add(stored.holder)
            self._topics[stored.project_id].add(topic)

    def __len__(self) -> int:
        return self._shared.used

    def matching(self, topic_filter: str) -> Iterator[tuple[str, Message]]:
        """The retained messages whose topics match, without expired ones."""
        now = clock.now_ms()
        for topic, message in self._messages.match(topic_filter):
            if not 0 < message.expires_at_ms <= now:
                yield topic, message

    def get(self, topic: str) -> Message | None:
        """The retained message of a topic."""
        return self._messages.get(topic)

    def put(self, message: Message, operations: list[Operation]) -> NodeError | None:
        """Retain a message, or drop the retained message of its topic; return the error if that is
        not possible."""
        topic = message.topic
        known = self._messages.get(topic)
        if not message.payload:
            if known is not None:
                self.remove(topic, operations)
            return None
        properties = pack_properties(message.properties)
        if len(message.payload) + len(properties) > RETAINED_BYTES:
            return TooManyRequestsError(
                what=f"a retained message may have {RETAINED_BYTES} bytes at most, including "
                "its properties"
            )
        if known is None and not self._shared.has(message.holder):
            return TooManyRequestsError(
                what=f"{len(self)} retained messages, "
                f"{self._shared.of(message.holder)} of this login or address: the "
                "limit is reached"
            )
        if self._expiry_s:
            latest = clock.now_ms() + 1_000 * self._expiry_s
            if not 0 < message.expires_at_ms < latest:
                message = replace(message, expires_at_ms=latest)
        self._messages.set(topic, message)
        if known is not None:
            self._shared.add(known.holder, -1)
            self._topics[known.project_id].discard(topic)
        self._shared.add(message.holder)
        self._topics[message.project_id].add(topic)
        row = to_stored(message, message.qos, properties)
        operations.append(PutRetained(topic, row))
        return None

    def remove(self, topic: str, operations: list[Operation] | None = None) -> bool:
        """Drop the retained message of a topic; return False if there is none."""
        known = self._messages.get(topic)
        if known is None:
            return False
        self._messages.remove(topic)
        self._shared.add(known.holder, -1)
        self._topics[known.project_id].discard(topic)
        if operations is None:
            self._write([DeleteRetained(topic)], None)
        else:
            operations.append(DeleteRetained(topic))
        return True

    def drop_of_removed(self, exists: Callable[[int], bool]) -> None:
        """Drop the messages of projects that do not exist any more."""
        operations: list[Operation] = []
        for project_id in [each for each in self._topics if each and not exists(each)]:
            for topic in list(self._topics[project_id]):
                self.remove(topic, operations)
            del self._topics[project_id]
        if operations:
            self._write(operations, None)

    def assign(self, project_of: Callable[[str], int]) -> None:
        """Set the projects of messages that an earlier version has stored without a project."""
        for topic in list(self._topics[0]):
            message, project_id = self._messages.get(topic), project_of(topic)
            if message is not None and project_id:
                self._messages.set(topic, replace(message, project_id=project_id))
                self._topics[0].discard(topic)
                self._topics[project_id].add(topic)

    def expire(self) -> None:
        """Drop the retained messages that have expired; called from time to time."""
        now = clock.now_ms()
        expired = [
            topic
            for topic, message in self._messages.match("#")
            if 0 < message.expires_at_ms <= now
        ]
        for topic in expired:
            self.remove(topic)


def message_of(stored: StoredMessage) -> Message:
    """A message from the store."""
    return Message(
        stored.topic,
        stored.payload,
        stored.qos,
        stored.retain,
        unpack_properties(stored.properties),
        stored.expires_at_ms,
        stored.publisher_id,
        stored.project_id,
        holder=stored.holder,
    )
