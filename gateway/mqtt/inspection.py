"""Inspection of the MQTT server: the requests of administrators to its process, and the answers.

The process of the node's own MQTT server has an `Inspectable` and answers for it. The HTTP
gateways ask through `RemoteInspection`.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from fieldbrook.core.errors import BadRequestError, FieldError, NodeError, from_wire, to_wire
from fieldbrook.gateway.peers import Answers, ask_peer

SERVER = "mqtt:0"
"""The gateway process to which the requests are sent."""
QUESTION = "mqtt"
PAGE_LIMIT = 1_000
NEVER_EXPIRES_S = 0xFFFFFFFF

Transport = Literal["tcp", "tls", "websocket"]
Version = Literal["3.1.1", "5.0"]


class ConnectedClient(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A connected client, with the counts of its connection.

    `key` is the key of its session. `principal` is empty for a client without a login.
    `keep_alive_s` is 0 for a client that sends no pings. `unacknowledged_in` counts messages of the
    client that the node still handles. `unacknowledged_out` counts messages that were sent to the
    client and have no acknowledgement. `queued` counts these messages and the messages that wait
    for the client.
    """

    key: str
    client_id: str
    principal: str
    address: str
    transport: Transport
    version: Version
    connected_at_ms: int
    keep_alive_s: int
    session_expiry_s: int
    subscriptions: int
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    unacknowledged_in: int
    unacknowledged_out: int
    queued: int


class SubscriptionState(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One subscription; `identifier` is 0 without one."""

    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0


class SessionState(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A session, connected or not.

    Times are Unix milliseconds. `ended_at_ms` is 0 while the client is connected. `expires_at_ms`
    is 0 while the client is connected, and if the session never expires. `queued` counts messages
    that wait for the client or that it has not acknowledged. `filters` has the subscriptions if a
    single session was requested.
    """

    key: str
    client_id: str
    principal: str
    is_connected: bool
    created_at_ms: int
    ended_at_ms: int
    expires_at_ms: int
    session_expiry_s: int
    subscriptions: int
    queued: int
    queued_bytes: int
    unacknowledged_out: int
    has_will: bool
    filters: Sequence[SubscriptionState] = ()


class RetainedState(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A retained message; `payload` is set only if a single message was requested.

    `expires_at_ms` is 0 if the message never expires.
    """

    topic: str
    qos: int
    size: int
    expires_at_ms: int
    payload: bytes = b""


class Inspectable(Protocol):
    """The operations of the MQTT server's process for administrators; all are called in its loop.

    Lists are in the order of keys: at most `limit` entries with keys after `after` (`""` for the
    first page).
    """

    def clients(self, after: str, limit: int) -> Sequence[ConnectedClient]:
        """Return connected clients by the keys of their sessions."""

    def client(self, key: str) -> ConnectedClient | None:
        """Return the client of a session, None if it is not connected."""

    def disconnect(self, key: str) -> bool:
        """End the connection of a session; return whether there was one."""

    def keys(self, client_id: str) -> Sequence[str]:
        """Return the keys of all sessions with a client id: at most one for each principal."""

    def sessions(self, after: str, limit: int) -> Sequence[SessionState]:
        """Return sessions by their keys, without their filters."""

    def session(self, key: str) -> SessionState | None:
        """Return one session with its filters."""

    async def remove_session(self, key: str) -> bool:
        """Remove a session with its subscriptions and messages, and end its connection.

        Returns:
            Whether there was one; returned after the removal from the disk.

        Raises:
            NodeError: the store failed.
        """

    def retained(self, after: str, limit: int) -> Sequence[RetainedState]:
        """Return retained messages by their topics, without their payloads."""

    def retained_message(self, topic: str) -> RetainedState | None:
        """Return one retained message with its payload."""

    async def remove_retained(self, topic: str) -> bool:
        """Remove a retained message, without a message to subscribers.

        Returns:
            Whether there was one; returned after the removal from the disk.

        Raises:
            NodeError: the store failed.
        """

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool) -> int:
        """Publish a message, as the node itself does.

        Returns:
            How many sessions get the message; it is returned after the message is stored for kept
            sessions.

        Raises:
            NodeError: the topic or the message is refused, or the store failed.
        """


_BAD_REQUEST = "fields"
_RESULTS: dict[str, Any] = {
    "clients": list[ConnectedClient],
    "client": ConnectedClient | None,
    "disconnect": bool,
    "keys": list[str],
    "sessions": list[SessionState],
    "session": SessionState | None,
    "remove_session": bool,
    "retained": list[RetainedState],
    "retained_message": RetainedState | None,
    "remove_retained": bool,
    "publish": int,
}


def answers(inspectable: Inspectable) -> Answers:
    """Return the answers of the process of the MQTT server, for `serve_peers`."""

    async def answer(argument: Any) -> Any:
        name, arguments, options = argument
        if name not in _RESULTS:
            raise ValueError(name)
        try:
            result = getattr(inspectable, name)(*arguments, **options)
            if inspect.isawaitable(result):
                result = await result
        except BadRequestError as error:  # its fields are no details
            found = [(each.field, each.msg, each.location) for each in error.fields() or ()]
            return [False, (_BAD_REQUEST, found)]
        except NodeError as error:
            return [False, to_wire(error)]
        return [True, msgspec.to_builtins(result, builtin_types=(bytes,))]

    return {QUESTION: answer}


class RemoteInspection:
    """Asks the process of the MQTT server; it has the methods of `Inspectable`.

    Each method raises UnavailableError if the process does not answer.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    async def clients(self, after: str, limit: int) -> list[ConnectedClient]:
        """See `Inspectable`."""
        found: list[ConnectedClient] = await self._ask("clients", after, min(limit, PAGE_LIMIT))
        return found

    async def client(self, key: str) -> ConnectedClient | None:
        """See `Inspectable`."""
        found: ConnectedClient | None = await self._ask("client", key)
        return found

    async def disconnect(self, key: str) -> bool:
        """See `Inspectable`."""
        return bool(await self._ask("disconnect", key))

    async def keys(self, client_id: str) -> list[str]:
        """See `Inspectable`."""
        found: list[str] = await self._ask("keys", client_id)
        return found

    async def sessions(self, after: str, limit: int) -> list[SessionState]:
        """See `Inspectable`."""
        found: list[SessionState] = await self._ask("sessions", after, min(limit, PAGE_LIMIT))
        return found

    async def session(self, key: str) -> SessionState | None:
        """See `Inspectable`."""
        found: SessionState | None = await self._ask("session", key)
        return found

    async def remove_session(self, key: str) -> bool:
        """See `Inspectable`."""
        return bool(await self._ask("remove_session", key))

    async def retained(self, after: str, limit: int) -> list[RetainedState]:
        """See `Inspectable`."""
        found: list[RetainedState] = await self._ask("retained", after, min(limit, PAGE_LIMIT))
        return found

    async def retained_message(self, topic: str) -> RetainedState | None:
        """See `Inspectable`."""
        found: RetainedState | None = await self._ask("retained_message", topic)
        return found

    async def remove_retained(self, topic: str) -> bool:
        """See `Inspectable`."""
        return bool(await self._ask("remove_retained", topic))

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool) -> int:
        """See `Inspectable`."""
        return int(await self._ask("publish", topic, payload, qos, retain=retain))

    async def _ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        done, result = await self._exchange([name, arguments, options])
        if not done:
            error, details = result
            if error == _BAD_REQUEST:
                raise BadRequestError(*(FieldError(*each) for each in details))
            raise from_wire(error, details)
        return msgspec.convert(result, _RESULTS[name], builtin_types=(bytes,))

    async def _exchange(self, argument: Any) -> Any:
        return await ask_peer(self._run_dir, SERVER, QUESTION, argument)
