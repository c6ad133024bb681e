"""State of the embedded MQTT broker: retained messages, QoS 2 messages and sessions.

Source: ours; the interface has no such routes.
"""

from __future__ import annotations

from typing import Any

from fieldbrook.core.errors import BadRequestError, FieldError, NotFoundError
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.gateway.management.framework.views import Json
from fieldbrook.gateway.mqtt.broker_bounds import KINDS, BrokerState


async def get_mqtt(call: Call[None, None]) -> Json:
    """The numbers of retained messages, unreleased QoS 2 messages and sessions, with their
    limits."""
    found = await _broker(call).read_usage()
    rows = [
        {
            "kind": kept.kind,
            "count": kept.number,
            "limit": kept.limit,
            "bytes": kept.size_bytes,
            "limitBytes": kept.limit_bytes,
            "full": kept.full,
        }
        for kept in found
    ]
    return {"data": rows, "total": len(rows)}


async def clear_mqtt(call: Call[None, None]) -> Json:
    """Remove all retained messages, all unreleased QoS 2 messages, or all sessions. To remove
    sessions, the broker restarts and all devices reconnect."""
    kind = call.path["kind"]
    if kind not in KINDS:
        raise BadRequestError(FieldError("kind", f"must be one of {', '.join(KINDS)}", "path"))
    return {"kind": kind, "removed": await _broker(call).clear(kind)}


def _broker(call: Call[Any, Any]) -> BrokerState:
    if call.context.broker is None:
        raise NotFoundError(what="this node uses an external MQTT broker: query that broker")
    return call.context.broker


ROUTES: tuple[Route, ...] = (
    Route("GET", "/mqtt", "GetMqtt", get_mqtt, auth=Auth.ADMIN),
    Route("DELETE", "/mqtt/{kind}", "ClearMqtt", clear_mqtt, auth=Auth.ADMIN),
)
