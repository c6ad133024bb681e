"""The health of the node, with details that only administrators may see.

Source: ours; the original interface has only `/liveness`.
"""

from __future__ import annotations

from typing import Any

from fieldbrook.core.clock import rfc3339
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.gateway.management.framework.views import Json
from fieldbrook.observability.health import MEANINGS, Trouble


async def get_health(call: Call[None, None]) -> Json:
    """Current health conditions, recent ones (newest first), and the states of the processes."""
    condition = call.context.condition()
    now_ms = call.context.clock()
    return {
        "healthy": not condition.all_troubles,
        "data": [_trouble_json(trouble, now_ms) for trouble in condition.all_troubles],
        "total": len(condition.all_troubles) + condition.more,
        "recent": [_trouble_json(trouble, now_ms) for trouble in condition.recent],
        "parts": dict(condition.parts),
        "projects": dict(condition.projects),
    }


def _trouble_json(trouble: Trouble, now_ms: int) -> Json:
    shown: Json = {
        "part": trouble.part,
        "state": trouble.state,
        "meaning": MEANINGS[trouble.state],
        "detail": trouble.detail,
    }
    if trouble.since_ms:
        end_ms = trouble.until_ms or now_ms
        shown |= {
            "since": rfc3339(trouble.since_ms),
            "seconds": max(0, end_ms - trouble.since_ms) // 1000,
        }
    if trouble.until_ms:
        shown["until"] = rfc3339(trouble.until_ms)
    return shown


ROUTES: tuple[Route[Any, Any], ...] = (
    Route("GET", "/health", "GetHealth", Auth.ADMIN, get_health),
)
