"""Views: the JSON objects that clients get for records of the registry.

Source: interface document, sections 2 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.model import (
    PER_INSTANCE,
    PROJECT_DATABASE,
    PROJECT_ENV,
    PROJECT_FLOW,
    REMOVED,
    Applet,
    Config,
    Project,
    Record,
    Resource,
    Strategy,
)
from fieldbrook.gateway.management.framework import warnings
from fieldbrook.gateway.management.framework.binding import Paging

R = TypeVar("R", bound=Record)
NEVER = "0001-01-01T00:00:00Z"  # an unset time (interface document, 1.4)
Json = dict[str, Any]


def page(rows: Iterable[R], paging: Paging, *, by_creation: bool = False) -> list[R]:
    """The requested page of a list, latest change first.

    With `by_creation` the latest created row comes first, as in the lists of the seed era.
    """
    # Rows come in the order of their creation. Reversing them before the stable sort puts the
    # newer one of two rows with the same millisecond first.
    latest = list(rows)[::-1]
    ordered = sorted(latest, key=_by_creation if by_creation else _by_change, reverse=True)
    if paging.size < 0:
        return ordered[paging.offset :]
    return ordered[paging.offset : paging.offset + paging.size]


def page_json(
    rows: Sequence[R], paging: Paging, view: Callable[[R], Json], *, by_creation: bool = False
) -> Json:
    """The answer of a list: the requested page, and the number of all rows; see `page`."""
    shown = page(rows, paging, by_creation=by_creation)
    return {"data": [view(row) for row in shown], "total": len(rows)}


def project_json(
    project: Project, configs: Iterable[Config] = (), *, channel_state: bool = True
) -> Json:
    """A project with its configurations.

    Args:
        channel_state: whether the node listens to the topic of the project.
    """
    optional = {
        "version": project.version,
        "protocol": project.protocol,
        "description": project.description,
    }
    values = {config.kind: msgspec.Raw(config.value) for config in configs}
    return {
        "projectID": str(project.project_id),
        "accountID": str(project.account_id),
        "name": project.name,
        **{key: value for key, value in optional.items() if value},
        "public": project.public,
        "envs": values.get(PROJECT_ENV, {"env": []}),
        "database": values.get(PROJECT_DATABASE, {"schemas": []}),
        **({"flow": values[PROJECT_FLOW]} if PROJECT_FLOW in values else {}),
        "channelState": channel_state,
        **times_json(project),
    }


def project_row_json(project: Project, applets: Iterable[tuple[Applet, Resource | None]]) -> Json:
    """A project in a list, with its applets, their modules and their instances."""
    return {
        "projectID": str(project.project_id),
        "projectName": project.name,
        "applets": [_applet_row_json(applet, resource) for applet, resource in applets],
        **times_json(project),
    }


def _applet_row_json(applet: Applet, resource: Resource | None) -> Json:
    """An applet in the row of its project, with the keys of both generations of clients.

    The early keys are `appletName` and `instanceState`; the later ones are `name`, `state`,
    `path` and `md5`.
    """
    instance = {
        "instanceID": str(applet.instance_id),
        "instanceState": applet.state,
        "instanceStateVM": applet.state,
        "state": applet.state,
    }
    return {
        **applet_json(applet),
        "appletName": applet.name,
        **({} if resource is None else {"path": resource.sha256, "md5": resource.md5}),
        **({} if applet.state == REMOVED else instance),
    }


def instance_json(applet: Applet) -> Json:
    """The instance of an applet. The state has two keys, one per generation of clients."""
    return {
        "instanceID": str(applet.instance_id),
        "appletID": str(applet.applet_id),
        "instanceState": applet.state,
        "state": applet.state,
        **times_json(applet),
    }


def instances_json(applet: Applet) -> list[Json]:
    """The instances of an applet: one, or none after it was removed."""
    return [] if applet.state == REMOVED else [instance_json(applet)]


def applet_json(applet: Applet) -> Json:
    """An applet alone."""
    return {
        "appletID": str(applet.applet_id),
        "projectID": str(applet.project_id),
        "resourceID": str(applet.resource_id),
        "name": applet.name,
        "wasmName": applet.wasm_name,
        "isolation": applet.isolation,
        **({"reuseEvents": applet.reuse_events} if applet.isolation == PER_INSTANCE else {}),
        "version": applet.version,
        "wasmCache": cache_json(applet),
        **times_json(applet),
    }


def cache_json(applet: Applet) -> Json:
    """The settings of an applet's key-value store: its mode and its prefix."""
    prefix = {"prefix": applet.cache_prefix} if applet.cache_prefix else {}
    return {"mode": applet.cache_mode, **prefix}


def deployed_json(
    applet: Applet,
    resource: Resource,
    strategies: Sequence[Strategy],
    other_warnings: Iterable[str] = (),
) -> Json:
    """An applet with its instance, resource and strategies.

    The warnings about dead strategies come before `other_warnings`.
    """
    dead = warnings.dead_strategies(strategies, {applet.applet_id: resource})
    return {
        **applet_json(applet),
        "instance": instance_json(applet) if applet.state != REMOVED else None,
        "resource": resource_json(resource),
        "strategies": [strategy_json(strategy, resource) for strategy in strategies],
        **warnings.to_json([*dead, *other_warnings]),
    }


def resource_json(resource: Resource) -> Json:
    """A resource; `path` is its name in the node's store of modules. Resources never expire."""
    return {
        "resourceID": str(resource.resource_id),
        "path": resource.sha256,
        "md5": resource.md5,
        "uploadedAt": rfc3339(resource.created_at),
        "expireAt": NEVER,
        "filename": resource.filename,
        "comment": "",
        "size": resource.size,
        **times_json(resource),
    }


def strategy_json(strategy: Strategy, resource: Resource | None) -> Json:
    """A strategy.

    Args:
        resource: the module of the strategy's applet; it decides whether the strategy is dead.
    """
    return {
        "strategyID": str(strategy.strategy_id),
        "projectID": str(strategy.project_id),
        "appletID": str(strategy.applet_id),
        "eventType": strategy.event_type,
        "handler": strategy.handler,
        "autoCollectMetric": bool(strategy.auto_collect_metric),
        **dead_json(strategy, resource),
        **times_json(strategy),
    }


def dead_json(strategy: Strategy, resource: Resource | None) -> Json:
    """Whether a strategy is dead, and why."""
    why = warnings.dead_strategy(strategy, resource)
    return {"dead": bool(why), **warnings.to_json(why)}


def _by_change(row: Record) -> tuple[int, int]:
    return row.updated_at, row.created_at


def _by_creation(row: Record) -> int:
    return row.created_at


def times_json(*rows: Record) -> Json:
    """The earliest `createdAt` and the latest `updatedAt` of the rows."""
    return {
        "createdAt": rfc3339(min(row.created_at for row in rows)),
        "updatedAt": rfc3339(max(row.updated_at for row in rows)),
    }
