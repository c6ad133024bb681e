"""Clients, sessions and retained messages of the node's own MQTT server.

Source: ours; the original interface has no such routes.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.errors import BadRequestError, FieldError, NotFoundError
from fieldbrook.gateway.management.framework.binding import RowLimit, Text, json_key
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.gateway.management.routes.data.encoding import Encoding, decode, encode
from fieldbrook.gateway.mqtt.inspection import (
    NEVER_EXPIRES_S,
    ConnectedClient,
    RemoteInspection,
    RetainedState,
    SessionState,
    SubscriptionState,
    Transport,
    Version,
)

_TOPIC_LIMIT = 65_535
_CURSOR_LIMIT = 2_048  # the key of a session has at most 1 KiB
Topic = Annotated[str, msgspec.Meta(min_length=1, max_length=_TOPIC_LIMIT)]


class MqttList(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list; `after` is the `next` of the part before, or empty for the first."""

    after: Annotated[str, msgspec.Meta(max_length=_CURSOR_LIMIT)] = ""
    limit: RowLimit = 100


class RetainedList(MqttList, frozen=True, kw_only=True):
    """A part of the list; `after` is the `next` of the part before, which is a topic."""

    after: Annotated[str, msgspec.Meta(max_length=_TOPIC_LIMIT)] = ""


class WhichClient(msgspec.Struct, frozen=True, kw_only=True):
    """Whose client, if several have the id: `principal` as in the list, `-` for one without a
    login."""

    principal: Text = ""


class WhichTopic(msgspec.Struct, frozen=True, kw_only=True):
    """The topic of the message."""

    topic: Topic


class WantedPayload(WhichTopic, frozen=True, kw_only=True):
    """The topic of the message; `encoding` is the wanted one of the payload."""

    encoding: Encoding = "text"


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message; `encoding` is that of the payload, which may be empty."""

    topic: Topic
    payload: str = ""
    encoding: Encoding = "text"
    qos: Annotated[int, msgspec.Meta(ge=0, le=2)] = 0
    retain: bool = False


class MqttClient(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A connected client, and what went over this connection.

    `principal` names the publisher or account with whose token it logged in. `keepAlive` and
    `sessionExpiry` are seconds; without `sessionExpiry` its session never expires.
    `unacknowledgedIn` counts messages that the node still handles, `unacknowledgedOut` those that
    were sent to the client and that it has not acknowledged, `queued` those and the ones that wait.
    """

    client_id: str
    principal: str | UnsetType = UNSET
    address: str
    transport: Transport
    version: Version
    connected_at: str
    keep_alive: int
    session_expiry: int | UnsetType = UNSET
    subscriptions: int
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    unacknowledged_in: int
    unacknowledged_out: int
    queued: int


class MqttClients(msgspec.Struct, frozen=True, kw_only=True):
    """Connected clients; `next` is there if there may be more."""

    data: list[MqttClient]
    next: str | UnsetType = UNSET


class MqttSubscription(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """One subscription of a session."""

    filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int | UnsetType = UNSET


class MqttSession(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A session: what the node keeps for a client, also while it is away.

    `queued` counts messages that wait for the client or that it has not acknowledged. `endedAt` is
    there while it is away, and `expiresAt` then if its session expires; `will` tells whether a last
    will is set.
    """

    client_id: str
    principal: str | UnsetType = UNSET
    connected: bool
    created_at: str
    ended_at: str | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET
    session_expiry: int | UnsetType = UNSET
    subscriptions: int
    queued: int
    queued_bytes: int
    unacknowledged_out: int
    will: bool


class MqttSessions(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions; `next` is there if there may be more."""

    data: list[MqttSession]
    next: str | UnsetType = UNSET


class MqttSessionDetails(MqttSession, frozen=True, kw_only=True, rename=json_key):
    """A session with its subscriptions."""

    filters: list[MqttSubscription]


class RetainedMessage(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A retained message; `size` is that of its payload in bytes."""

    topic: str
    qos: int
    size: int
    expires_at: str | UnsetType = UNSET


class RetainedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Retained messages; `next` is there if there may be more."""

    data: list[RetainedMessage]
    next: str | UnsetType = UNSET


class RetainedPayload(RetainedMessage, frozen=True, kw_only=True, rename=json_key):
    """A retained message with its payload, which is base64 if it is not UTF-8."""

    payload: str
    encoding: Encoding


class PublishedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was published; `receivers` counts the sessions that get it."""

    topic: str
    size: int
    receivers: int


# ---------------------------------------------------------------- clients


async def list_clients(call: Call[None, MqttList]) -> MqttClients:
    """The clients that are connected to the node's own MQTT server, in the order of their ids."""
    query = call.query
    found = await _server(call).clients(_from_cursor(query.after), query.limit)
    following = _cursor(found[-1].key) if len(found) == query.limit else UNSET
    return MqttClients(data=[_client(each) for each in found], next=following)


async def get_client(call: Call[None, WhichClient]) -> MqttClient:
    """One connected client."""
    found = await _server(call).client(await _key(call))
    if found is None:
        raise NotFoundError(what=f"the connection of MQTT client {call.path['clientID']!r}")
    return _client(found)


async def disconnect_client(call: Call[None, WhichClient]) -> None:
    """End the connection of a client. Its session stays, and it may connect again."""
    if not await _server(call).disconnect(await _key(call)):
        raise NotFoundError(what=f"the connection of MQTT client {call.path['clientID']!r}")


# ---------------------------------------------------------------- sessions


async def list_sessions(call: Call[None, MqttList]) -> MqttSessions:
    """The sessions of all clients, connected or not, in the order of their ids."""
    query = call.query
    found = await _server(call).sessions(_from_cursor(query.after), query.limit)
    following = _cursor(found[-1].key) if len(found) == query.limit else UNSET
    rows = [MqttSession(**_session(each)) for each in found]
    return MqttSessions(data=rows, next=following)


async def get_session(call: Call[None, WhichClient]) -> MqttSessionDetails:
    """One session with its subscriptions."""
    found = await _server(call).session(await _key(call))
    if found is None:
        raise _no_session(call)
    filters = [_subscription(each) for each in found.filters]
    return MqttSessionDetails(filters=filters, **_session(found))


async def remove_session(call: Call[None, WhichClient]) -> None:
    """Remove a session with its subscriptions and all messages that wait for its client, and end
    its connection."""
    if not await _server(call).remove_session(await _key(call)):
        raise _no_session(call)


# ---------------------------------------------------------------- messages


async def list_retained(call: Call[None, RetainedList]) -> RetainedMessages:
    """The retained messages, in the order of their topics."""
    query = call.query
    found = await _server(call).retained(query.after, query.limit)
    following = found[-1].topic if len(found) == query.limit else UNSET
    rows = [RetainedMessage(**_retained(each)) for each in found]
    return RetainedMessages(data=rows, next=following)


async def get_retained(call: Call[None, WantedPayload]) -> RetainedPayload:
    """The retained message of a topic."""
    found = await _server(call).retained_message(call.query.topic)
    if found is None:
        raise _nothing_retained(call)
    payload, encoding = encode(found.payload, call.query.encoding)
    return RetainedPayload(payload=payload, encoding=encoding, **_retained(found))


async def remove_retained(call: Call[None, WhichTopic]) -> None:
    """Remove the retained message of a topic."""
    if not await _server(call).remove_retained(call.query.topic):
        raise _nothing_retained(call)


async def publish(call: Call[NewMessage, None]) -> PublishedMessage:
    """Publish a message to MQTT clients. Topics of events are refused: nobody can subscribe to
    them."""
    message = call.body
    payload = decode(message.payload, message.encoding, "payload", "body")
    receivers = await _server(call).publish(
        message.topic, payload, message.qos, retain=message.retain
    )
    return PublishedMessage(topic=message.topic, size=len(payload), receivers=receivers)


# ---------------------------------------------------------------- values


def _server(call: Call[Any, Any]) -> RemoteInspection:
    if call.context.mqtt is None:
        raise NotFoundError(what="this node uses an external MQTT broker: query that broker")
    return call.context.mqtt


async def _key(call: Call[None, WhichClient]) -> str:
    """Find the session that the path names.

    Raises:
        NotFoundError: there is no such session.
        BadRequestError: there are several, and the query does not select one.
    """
    client_id, wanted = call.path["clientID"], call.query.principal
    keys = {_principal(key): key for key in await _server(call).keys(client_id)}
    if wanted:
        keys = {name: key for name, key in keys.items() if name == wanted}
    if not keys:
        raise _no_session(call)
    if len(keys) > 1:
        names = ", ".join(sorted(keys))
        raise BadRequestError(FieldError("principal", f"several have this id: {names}", "query"))
    (key,) = keys.values()
    return key


def _principal(key: str) -> str:
    return key.partition("\0")[0] or "-"


def _cursor(key: str) -> str:
    """Return the key of a session, in characters that need no escapes in a URL."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _from_cursor(text: str) -> str:
    try:
        padded = text + "=" * (-len(text) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise BadRequestError(FieldError("after", "not the `next` of a list", "query")) from None


def _client(found: ConnectedClient) -> MqttClient:
    return MqttClient(
        client_id=found.client_id,
        principal=found.principal or UNSET,
        address=found.address,
        transport=found.transport,
        version=found.version,
        connected_at=rfc3339(found.connected_at_ms),
        keep_alive=found.keep_alive_s,
        session_expiry=_expiry(found.session_expiry_s),
        subscriptions=found.subscriptions,
        messages_in=found.messages_in,
        messages_out=found.messages_out,
        bytes_in=found.bytes_in,
        bytes_out=found.bytes_out,
        unacknowledged_in=found.unacknowledged_in,
        unacknowledged_out=found.unacknowledged_out,
        queued=found.queued,
    )


def _session(found: SessionState) -> dict[str, Any]:
    return {
        "client_id": found.client_id,
        "principal": found.principal or UNSET,
        "connected": found.is_connected,
        "created_at": rfc3339(found.created_at_ms),
        "ended_at": _time(found.ended_at_ms),
        "expires_at": _time(found.expires_at_ms),
        "session_expiry": _expiry(found.session_expiry_s),
        "subscriptions": found.subscriptions,
        "queued": found.queued,
        "queued_bytes": found.queued_bytes,
        "unacknowledged_out": found.unacknowledged_out,
        "will": found.has_will,
    }


def _subscription(found: SubscriptionState) -> MqttSubscription:
    return MqttSubscription(
        filter=found.topic_filter,
        qos=found.qos,
        no_local=found.no_local,
        retain_as_published=found.retain_as_published,
        identifier=found.identifier or UNSET,
    )


def _retained(found: RetainedState) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "qos": found.qos,
        "size": found.size,
        "expires_at": _time(found.expires_at_ms),
    }


def _time(time_ms: int) -> str | UnsetType:
    return rfc3339(time_ms) if time_ms else UNSET


def _expiry(expiry_s: int) -> int | UnsetType:
    return UNSET if expiry_s == NEVER_EXPIRES_S else expiry_s


def _no_session(call: Call[None, WhichClient]) -> NotFoundError:
    return NotFoundError(what=f"the session of MQTT client {call.path['clientID']!r}")


def _nothing_retained(call: Call[None, Any]) -> NotFoundError:
    return NotFoundError(what=f"a retained message of topic {call.query.topic[:200]!r}")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/mqtt/client", "ListMqttClients", list_clients, Auth.ADMIN),
    Route("GET", "/mqtt/client/{clientID}", "GetMqttClient", get_client, Auth.ADMIN),
    Route(
        *("DELETE", "/mqtt/client/{clientID}", "DisconnectMqttClient", disconnect_client),
        auth=Auth.ADMIN,
    ),
    Route("GET", "/mqtt/session", "ListMqttSessions", list_sessions, Auth.ADMIN),
    Route("GET", "/mqtt/session/{clientID}", "GetMqttSession", get_session, Auth.ADMIN),
    Route("DELETE", "/mqtt/session/{clientID}", "RemoveMqttSession", remove_session, Auth.ADMIN),
    Route("GET", "/mqtt/retained", "ListRetainedMessages", list_retained, Auth.ADMIN),
    Route("GET", "/mqtt/retained/message", "GetRetainedMessage", get_retained, Auth.ADMIN),
    Route("DELETE", "/mqtt/retained/message", "RemoveRetainedMessage", remove_retained, Auth.ADMIN),
    Route("POST", "/mqtt/publish", "PublishMqttMessage", publish, Auth.ADMIN),
)
