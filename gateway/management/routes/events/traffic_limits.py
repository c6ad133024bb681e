"""Traffic limits of a project: administrators set them, and the owner of the project can read
them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.durations import format_duration, parse_duration
from fieldbrook.core.errors import BadRequestError, FieldError, TrafficLimitNotFoundError
from fieldbrook.core.model import Project, TrafficLimit
from fieldbrook.gateway.auth import require_admin
from fieldbrook.gateway.management.framework.answers import Page, Timed, page, times
from fieldbrook.gateway.management.framework.binding import MISSING, Paging
from fieldbrook.gateway.management.framework.ownership import own_project, own_row
from fieldbrook.gateway.management.framework.route import Call, Route

_SHORTEST_MS, _LONGEST_MS = 1_000, 366 * 86_400_000

Threshold = Annotated[int, msgspec.Meta(ge=1, le=1 << 53)]
ApiType = Literal["EVENT", "BLOCKCHAIN"]


class UpdateTrafficLimit(msgspec.Struct, frozen=True, kw_only=True):
    """`threshold` calls per `duration`, of which one publisher may make `publisherThreshold`."""

    threshold: Threshold
    duration: str
    publisher_threshold: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] | None = msgspec.field(
        default=None, name="publisherThreshold"
    )


class CreateTrafficLimit(UpdateTrafficLimit, frozen=True, kw_only=True):
    """A new limit for one kind of call."""

    api_type: ApiType = msgspec.field(name="apiType")


class FilterTrafficLimits(Paging, frozen=True, kw_only=True):
    """Filters of limits; without a filter, all of the project. Removing ignores `size` and
    `offset`."""

    api_types: list[ApiType] = msgspec.field(default_factory=list, name="apiType")


class TrafficLimitReply(Timed, frozen=True):
    """A traffic limit; its duration is text in Go's format."""

    traffic_limit_id: str
    project_id: str
    threshold: int
    duration: str
    api_type: str
    publisher_threshold: int
    start_at: str


class TrafficLimitPage(Page[TrafficLimitReply], frozen=True):
    """A page of traffic limits; `total` counts all matching ones."""


async def create_traffic_limit(
    call: Call[CreateTrafficLimit, None],
) -> TrafficLimitReply:
    """Limit a kind of call: EVENT limits events of publishers, BLOCKCHAIN calls to a chain."""
    require_admin(call.account)
    project = own_project(call)
    limit = await call.context.registry.call(
        "create_traffic_limit",
        project_id=project.project_id,
        threshold=call.body.threshold,
        duration_ms=_duration_ms(call.body.duration),
        duration=call.body.duration,
        api_type=call.body.api_type,
        publisher_threshold=call.body.publisher_threshold or 0,
    )
    return _reply(limit)


async def update_traffic_limit(
    call: Call[UpdateTrafficLimit, None],
) -> TrafficLimitReply:
    """Change a limit; the counters are kept unless the length of the windows changes."""
    require_admin(call.account)
    limit = _own_limit(call)
    changed = await call.context.registry.call(
        "update_traffic_limit",
        traffic_limit_id=limit.traffic_limit_id,
        threshold=call.body.threshold,
        duration_ms=_duration_ms(call.body.duration),
        duration=call.body.duration,
        publisher_threshold=call.body.publisher_threshold,
    )
    return _reply(changed)


async def get_traffic_limit(call: Call[None, None]) -> TrafficLimitReply:
    """One limit."""
    return _reply(_own_limit(call))


async def list_traffic_limits(
    call: Call[None, FilterTrafficLimits],
) -> TrafficLimitPage:
    """The limits of a project."""
    found = _found(call, own_project(call), call.query)
    data = [_reply(limit) for limit in page(found, call.query)]
    return TrafficLimitPage(data, len(found))


async def remove_traffic_limit(call: Call[None, None]) -> None:
    """Remove a limit."""
    require_admin(call.account)
    limit = _own_limit(call)
    await _remove(call, limit.project_id, [limit])


async def remove_fitting_traffic_limits(call: Call[None, FilterTrafficLimits]) -> None:
    """Remove the limits that match the filters; without a filter, all of the project."""
    require_admin(call.account)
    project = own_project(call)
    await _remove(call, project.project_id, _found(call, project, call.query))


def _reply(limit: TrafficLimit) -> TrafficLimitReply:
    return TrafficLimitReply(
        traffic_limit_id=str(limit.traffic_limit_id),
        project_id=str(limit.project_id),
        threshold=limit.threshold,
        duration=limit.duration or format_duration(limit.duration_ms),
        api_type=limit.api_type,
        publisher_threshold=limit.publisher_threshold,
        start_at=rfc3339(limit.start_at),
        **times(limit),
    )


def is_duration(duration_ms: int) -> bool:
    """Return whether the length of a window is within the allowed range."""
    return _SHORTEST_MS <= duration_ms <= _LONGEST_MS


def _duration_ms(text: str) -> int:
    try:
        duration_ms = parse_duration(text)
    except ValueError as error:
        raise BadRequestError(FieldError("duration", str(error), "body")) from None
    if duration_ms == 0:
        raise BadRequestError(FieldError("duration", MISSING, "body"))
    if not is_duration(duration_ms):
        raise BadRequestError(FieldError("duration", "must be between 1s and 8784h", "body"))
    return duration_ms


def _own_limit(call: Call[Any, Any]) -> TrafficLimit:
    find = call.context.reader.traffic_limit
    return own_row(
        call,
        "trafficLimitID",
        find,
        lambda row_id: TrafficLimitNotFoundError(traffic_limit=row_id),
    )


def _found(
    call: Call[Any, Any], project: Project, wanted: FilterTrafficLimits
) -> list[TrafficLimit]:
    limits = call.context.reader.traffic_limits(project.project_id)
    return [t for t in limits if not wanted.api_types or t.api_type in wanted.api_types]


async def _remove(call: Call[Any, Any], project_id: int, limits: list[TrafficLimit]) -> None:
    await call.context.registry.call(
        "remove_traffic_limits",
        project_id=project_id,
        traffic_limit_ids=[limit.traffic_limit_id for limit in limits],
    )


_ALL = "/traffic/x/{projectName}"
ROUTES: tuple[Route, ...] = (
    Route("POST", _ALL, "CreateTrafficLimit", create_traffic_limit),
    Route("PUT", f"{_ALL}/{{trafficLimitID}}", "UpdateTrafficLimit", update_traffic_limit),
    Route("GET", "/traffic/data/{trafficLimitID}", "GetTrafficLimit", get_traffic_limit),
    Route("GET", f"{_ALL}/datalist", "ListTrafficLimit", list_traffic_limits),
    Route("DELETE", f"{_ALL}/data/{{trafficLimitID}}", "RemoveTrafficLimit", remove_traffic_limit),
    Route("DELETE", _ALL, "BatchRemoveTrafficLimit", remove_fitting_traffic_limits),
)
