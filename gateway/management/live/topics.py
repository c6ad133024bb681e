"""Topics of a stream: the rights that each needs, its filters and its reader."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from fieldbrook.core.errors import (
    BadRequestError,
    FieldError,
    ProjectNotFoundError,
    PublisherNotFoundError,
)
from fieldbrook.core.model import ADMIN, Account, Project
from fieldbrook.gateway.auth import Caller, require_admin
from fieldbrook.gateway.channel import project_name
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.framework.workers import Workers
from fieldbrook.gateway.management.live.caller_rights import may_read_project
from fieldbrook.gateway.management.live.channels import FlushedReader, Reader
from fieldbrook.gateway.management.live.dead_letters import DeadLettersReader
from fieldbrook.gateway.management.live.events import EventsReader, read_place
from fieldbrook.gateway.management.live.figures import HealthReader, SeriesReader
from fieldbrook.gateway.management.live.logs import LogsReader
from fieldbrook.gateway.management.live.messages import Follow, Topic
from fieldbrook.gateway.management.routes.events.log_lines import Level, level_number
from fieldbrook.gateway.metrics.readings import NAMES, PROJECT_NAMES
from fieldbrook.security import access_keys
from fieldbrook.security.access_keys import Group, Permission
from fieldbrook.storage.project.history.search import EventFilter
from fieldbrook.storage.project.log_search import LogFilter

GROUPS: dict[Topic, Group] = {
    "series": Group.PROJECT,
    "events": Group.EVENT,
    "logs": Group.WASM_LOG,
    "health": Group.ACCOUNT,
    "letters": Group.EVENT,
}
"""The groups on which an access key needs READONLY, by topic."""

_F = TypeVar("_F", bound=msgspec.Struct)


class EventsFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of `events`, like those of the route `/event_log`; `publisher` is a key or an id."""

    type: str = ""
    publisher: str = ""
    outcome: Literal["ok", "failed", "unhandled", "duplicate"] | None = None
    source: Literal["http", "mqtt", "cron", "api", "chain"] | None = None


class LogsFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of `logs`, like those of the route `/applet_log`: `level` or more severe, and a
    text."""

    level: Level | None = None
    contains: str = ""
    event_id: str = msgspec.field(name="eventID", default="")
    instance_id: str = msgspec.field(name="instanceID", default="")


class NoFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filter of topics without filters."""


class Source(NamedTuple):
    """The source of a topic: its channel's key, a function that creates its reader, and its
    project."""

    key: Hashable
    make: Callable[[], Reader]
    project_id: int | None


def source_of(
    context: ManagementContext, workers: Workers, caller: Caller, follow: Follow
) -> Source:
    """Find the source of the topic that a caller requests.

    Raises:
        NodeError: the caller may not follow the topic, the topic does not exist, or a filter is
            wrong.
    """
    if caller.key is not None:
        group = GROUPS[follow.topic]
        access_keys.require_permission(caller.key, group, Permission.READONLY, "Stream")
    account, topic = caller.account, follow.topic
    if topic == "health":
        require_admin(account)
        _bound(follow, NoFilter)
        return Source(topic, partial(HealthReader, context), None)
    project = _project(context, account, follow)
    if topic == "series":
        _bound(follow, NoFilter)
        return _series(context, account, project)
    if project is None:
        raise BadRequestError(FieldError("follow.project", "missing required field", "body"))
    if follow.after:
        # Check this here, because an error of the reader would end the channel for all followers.
        read_place(follow.after)
    store = partial(context.store_reader, project.project_id)
    key: tuple[Hashable, ...] = (topic, project.project_id)
    make: Callable[[], Reader]
    if topic == "events":
        wanted = _events_filter(context, project, _bound(follow, EventsFilter))
        key = (*key, wanted)
        make = partial(EventsReader, store, context.reader, wanted, workers.streams)
    elif topic == "logs":
        lines = _logs_filter(_bound(follow, LogsFilter))
        key, make = (*key, lines), partial(LogsReader, store, lines, workers.streams)
    else:
        _bound(follow, NoFilter)
        make = partial(DeadLettersReader, store, workers.searches, project.account_id)
    flush = partial(context.flush_if_running, project.project_id)
    return Source(key, lambda: FlushedReader(make(), flush), project.project_id)


def _project(context: ManagementContext, account: Account, follow: Follow) -> Project | None:
    if not follow.project:
        return None
    project = context.reader.project_named(project_name(follow.project))
    if project is None or not may_read_project(context, account, project.project_id):
        raise ProjectNotFoundError(project=follow.project[:128])
    return project


def _series(context: ManagementContext, account: Account, project: Project | None) -> Source:
    if project is not None:
        make = partial(SeriesReader, context, PROJECT_NAMES, project=project)
        return Source(("series", project.project_id), make, project.project_id)
    if account.role == ADMIN:
        return Source(("series", None), partial(SeriesReader, context, NAMES), None)
    make = partial(SeriesReader, context, PROJECT_NAMES, account.account_id)
    return Source(("series of", account.account_id), make, None)


def _bound(follow: Follow, kind: type[_F]) -> _F:
    """Return the filter of a request; empty values count as absent.

    Raises:
        BadRequestError: a filter is unknown or has a wrong value.
    """
    given = {name: value for name, value in follow.filter.items() if value not in ("", None)}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise BadRequestError(FieldError("follow.filter", str(error)[:500], "body")) from None


def _events_filter(
    context: ManagementContext, project: Project, given: EventsFilter
) -> EventFilter:
    publisher_id = None
    if given.publisher:
        publisher = context.reader.publisher(project.project_id, given.publisher)
        if publisher is None:
            raise PublisherNotFoundError(pub_id=given.publisher[:256])
        publisher_id = publisher.publisher_id
    return EventFilter(
        event_type=given.type or None,
        publisher_id=publisher_id,
        outcome=given.outcome,
        source=given.source,
    )


def _logs_filter(given: LogsFilter) -> LogFilter:
    instance: Any = given.instance_id
    if instance and not (instance.isascii() and instance.isdecimal() and len(instance) <= 19):
        raise BadRequestError(FieldError("follow.filter.instanceID", "must be an id", "body"))
    return LogFilter(
        level=None if given.level is None else level_number(given.level),
        contains=given.contains or None,
        event_id=given.event_id or None,
        instance_id=int(instance) if instance else None,
    )
