"""The health of the node, with details that only administrators may see.

Source: ours; the original interface has only `/liveness`.
"""

from __future__ import annotations

from fieldbrook.core.clock import rfc3339
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.gateway.management.framework.views import Json
from fieldbrook.observability.health import MEANINGS, Condition


async def get_health(call: Call[None, None]) -> Json:
    """Current health conditions, recent ones (newest first), and the states of the processes."""
    node_health = call.context.health()
    now_ms = call.context.clock()
    return {
        "healthy": not node_health.all_conditions,
        "data": [_condition_json(condition, now_ms) for condition in node_health.all_conditions],
        "total": len(node_health.all_conditions) + node_health.more,
        "recent": [_condition_json(condition, now_ms) for condition in node_health.recent],
        "parts": dict(node_health.parts),
        "projects": dict(node_health.projects),
    }


def _condition_json(condition: Condition, now_ms: int) -> Json:
    shown: Json = {
        "part": condition.part,
        "state": condition.state,
        "meaning": MEANINGS[condition.state],
        "detail": condition.detail,
    }
    if condition.since_ms:
        end_ms = condition.until_ms or now_ms
        shown |= {
            "since": rfc3339(condition.since_ms),
            "seconds": max(0, end_ms - condition.since_ms) // 1000,
        }
    if condition.until_ms:
        shown["until"] = rfc3339(condition.until_ms)
    return shown


ROUTES: tuple[Route, ...] = (Route("GET", "/health", "GetHealth", get_health, auth=Auth.ADMIN),)
