"""State of the embedded MQTT broker: retained messages, QoS 2 messages and sessions.

Source: ours; the interface has no such routes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fieldbrook.core.errors import BadRequestError, FieldError, NotFoundError
from fieldbrook.gateway.management.framework.answers import Page
from fieldbrook.gateway.management.framework.binding import json_key
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.gateway.mqtt.broker_bounds import KINDS, BrokerState


class BrokerUsage(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """How many retained messages, unreleased QoS 2 messages or sessions the broker keeps."""

    kind: str
    count: int
    limit: int
    bytes: int
    limit_bytes: int
    full: bool


class BrokerReply(Page[BrokerUsage], frozen=True):
    """What the embedded broker keeps, by kind."""


class ClearedBroker(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a kind was removed."""

    kind: str
    removed: int


async def get_mqtt(call: Call[None, None]) -> BrokerReply:
    """The numbers of retained messages, unreleased QoS 2 messages and sessions, with their
    limits."""
    rows = [
        BrokerUsage(
            kind=kept.kind,
            count=kept.number,
            limit=kept.limit,
            bytes=kept.size_bytes,
            limit_bytes=kept.limit_bytes,
            full=kept.full,
        )
        for kept in await _broker(call).read_usage()
    ]
    return BrokerReply(rows, len(rows))


async def clear_mqtt(call: Call[None, None]) -> ClearedBroker:
    """Remove all retained messages, all unreleased QoS 2 messages, or all sessions. To remove
    sessions, the broker restarts and all devices reconnect."""
    kind = call.path["kind"]
    if kind not in KINDS:
        raise BadRequestError(FieldError("kind", f"must be one of {', '.join(KINDS)}", "path"))
    return ClearedBroker(kind=kind, removed=await _broker(call).clear(kind))


def _broker(call: Call[Any, Any]) -> BrokerState:
    if call.context.broker is None:
        raise NotFoundError(what="this node uses an external MQTT broker: query that broker")
    return call.context.broker


ROUTES: tuple[Route, ...] = (
    Route("GET", "/mqtt", "GetMqtt", get_mqtt, auth=Auth.ADMIN),
    Route("DELETE", "/mqtt/{kind}", "ClearMqtt", clear_mqtt, auth=Auth.ADMIN),
)
