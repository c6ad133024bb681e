"""An MQTT server in memory that answers inspection requests about its clients and messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from fieldbrook.actors.wire import pack, unpack
from fieldbrook.core.errors import BadRequestError, FieldError, StorageFullError
from fieldbrook.gateway.mqtt.inspection import (
    QUESTION,
    ConnectedClient,
    Inspectable,
    RemoteInspection,
    RetainedState,
    SessionState,
    SubscriptionState,
    answers,
)

_T = TypeVar("_T")
CONNECTED_MS = 1_700_000_000_000


def key_of(client_id: str, principal: str = "") -> str:
    return f"{principal}\0{client_id}"


def client(client_id: str, principal: str = "", **values: Any) -> ConnectedClient:
    """Return a connected client with arbitrary values."""
    found = ConnectedClient(
        key=key_of(client_id, principal),
        client_id=client_id,
        principal=principal,
        address="192.0.2.7",
        transport="tls",
        version="5.0",
        connected_at_ms=CONNECTED_MS,
        keep_alive_s=60,
        session_expiry_s=3_600,
        subscriptions=1,
        messages_in=10,
        messages_out=20,
        bytes_in=1_000,
        bytes_out=2_000,
        unacknowledged_in=3,
        unacknowledged_out=4,
        queued=5,
    )
    return replace(found, **values)


def session(client_id: str, principal: str = "", **values: Any) -> SessionState:
    """Return the session of a disconnected client, with arbitrary values."""
    found = SessionState(
        key=key_of(client_id, principal),
        client_id=client_id,
        principal=principal,
        is_connected=False,
        created_at_ms=CONNECTED_MS,
        ended_at_ms=CONNECTED_MS + 1_000,
        expires_at_ms=CONNECTED_MS + 3_601_000,
        session_expiry_s=3_600,
        subscriptions=2,
        queued=5,
        queued_bytes=500,
        unacknowledged_out=0,
        has_will=True,
        filters=[
            SubscriptionState(topic_filter="a/#", qos=1),
            SubscriptionState(
                topic_filter="b", qos=2, no_local=True, retain_as_published=True, identifier=9
            ),
        ],
    )
    return replace(found, **values)


class MemoryMqtt(Inspectable):
    """Keeps clients, sessions and retained messages in dictionaries."""

    def __init__(self) -> None:
        self.connected: dict[str, ConnectedClient] = {}
        self.known: dict[str, SessionState] = {}
        self.kept: dict[str, RetainedState] = {}
        self.published: list[tuple[str, bytes, int, bool]] = []
        self.is_full = False

    def add(self, *clients: ConnectedClient) -> None:
        for each in clients:
            self.connected[each.key] = each
            self.known[each.key] = session(
                each.client_id, each.principal, is_connected=True, ended_at_ms=0, expires_at_ms=0
            )

    def clients(self, after: str, limit: int) -> Sequence[ConnectedClient]:
        return _page(self.connected.items(), after, limit)

    def client(self, key: str) -> ConnectedClient | None:
        return self.connected.get(key)

    def disconnect(self, key: str) -> bool:
        return self.connected.pop(key, None) is not None

    def keys(self, client_id: str) -> Sequence[str]:
        return [key for key, each in self.known.items() if each.client_id == client_id]

    def sessions(self, after: str, limit: int) -> Sequence[SessionState]:
        found = _page(self.known.items(), after, limit)
        return [replace(each, filters=()) for each in found]

    def session(self, key: str) -> SessionState | None:
        return self.known.get(key)

    async def remove_session(self, key: str) -> bool:
        self._check()
        self.connected.pop(key, None)
        return self.known.pop(key, None) is not None

    def retained(self, after: str, limit: int) -> Sequence[RetainedState]:
        found = _page(self.kept.items(), after, limit)
        return [replace(each, payload=b"") for each in found]

    def retained_message(self, topic: str) -> RetainedState | None:
        return self.kept.get(topic)

    async def remove_retained(self, topic: str) -> bool:
        self._check()
        return self.kept.pop(topic, None) is not None

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool) -> int:
        self._check()
        if "#" in topic:
            raise BadRequestError(FieldError("topic", "no topic of messages", "body"))
        self.published.append((topic, payload, qos, retain))
        return len(self.connected)

    def retain(self, topic: str, payload: bytes, expires_at_ms: int = 0) -> None:
        self.kept[topic] = RetainedState(
            topic=topic, qos=1, size=len(payload), expires_at_ms=expires_at_ms, payload=payload
        )

    def _check(self) -> None:
        if self.is_full:
            raise StorageFullError(reason="the store has reached its size limit")


def _page(rows: Iterable[tuple[str, _T]], after: str, limit: int) -> list[_T]:
    return [row for key, row in sorted(rows, key=lambda pair: pair[0]) if key > after][:limit]


class DirectInspection(RemoteInspection):
    """Sends requests to a server in the same process; requests and answers are encoded as between
    processes."""

    def __init__(self, server: Inspectable) -> None:
        super().__init__(Path("nowhere"))
        self._answer = answers(server)[QUESTION]

    async def _exchange(self, argument: Any) -> Any:
        return unpack(pack(await self._answer(unpack(pack(argument)))))
