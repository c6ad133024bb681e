"""Views: the JSON objects that clients get for records of the registry.

Source: interface document, sections 2 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.durations import format_duration
from fieldbrook.core.model import (
    CHAIN_TX,
    CONTRACT_LOG,
    PER_INSTANCE,
    PROJECT_DATABASE,
    PROJECT_ENV,
    PROJECT_FLOW,
    REMOVED,
    Account,
    Applet,
    AppletVersion,
    Config,
    ContractAbi,
    CronJob,
    Monitor,
    Project,
    Publisher,
    Record,
    Resource,
    Strategy,
    TrafficLimit,
)
from fieldbrook.gateway.management.framework import warnings
from fieldbrook.gateway.management.framework.binding import Paging
from fieldbrook.security.access_keys import (
    DESCRIPTIONS,
    PUBLISHER_PRIVILEGES,
    Group,
    Permission,
    is_access_key,
    publisher_key_name,
)
from fieldbrook.storage.chain.store import Cursor
from fieldbrook.storage.project.rows import LogRow

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


def account_json(account: Account) -> Json:
    """An account, without the hash of its password."""
    return {
        "accountID": str(account.account_id),
        "username": account.username,
        "role": account.role,
        "state": account.state,
        **({"avatar": account.avatar} if account.avatar else {}),
        **_times(account),
    }


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
        **_times(project),
    }


def config_json(config: Config) -> Json:
    """A configuration, without its value."""
    return {
        "configID": str(config.config_id),
        "relID": str(config.project_id),
        "type": config.kind,
        **_times(config),
    }


def project_row_json(project: Project, applets: Iterable[tuple[Applet, Resource | None]]) -> Json:
    """A project in a list, with its applets, their modules and their instances."""
    return {
        "projectID": str(project.project_id),
        "projectName": project.name,
        "applets": [_applet_row_json(applet, resource) for applet, resource in applets],
        **_times(project),
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
        **_times(applet),
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
        **_times(applet),
    }


def cache_json(applet: Applet) -> Json:
    """The settings of an applet's key-value store: its mode and its prefix."""
    prefix = {"prefix": applet.cache_prefix} if applet.cache_prefix else {}
    return {"mode": applet.cache_mode, **prefix}


def version_json(version: AppletVersion, resource: Resource, applet: Applet) -> Json:
    """A stored version of an applet, and whether it is the one that runs."""
    return {
        "version": version.number,
        "appletID": str(version.applet_id),
        "current": version.number == applet.version,
        "wasmName": version.wasm_name,
        "resourceID": str(version.resource_id),
        "md5": resource.md5,
        "size": resource.size,
        "handlers": resource.handlers,
        **_times(version),
    }


def deployed_json(
    applet: Applet,
    resource: Resource,
    strategies: Sequence[Strategy],
    other_warnings: Iterable[str] = (),
) -> Json:
    """An applet with its instance, resource and strategies.

    The warnings about dead strategies come before `other_warnings`.
    """
    dead = warnings.of_strategies(strategies, {applet.applet_id: resource})
    return {
        **applet_json(applet),
        "instance": instance_json(applet) if applet.state != REMOVED else None,
        "resource": resource_json(resource),
        "strategies": [strategy_json(strategy, resource) for strategy in strategies],
        **warnings.shown([*dead, *other_warnings]),
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
        **_times(resource),
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
        **_times(strategy),
    }


def dead_json(strategy: Strategy, resource: Resource | None) -> Json:
    """Whether a strategy is dead, and why."""
    why = warnings.of_strategy(strategy, resource)
    return {"dead": bool(why), **warnings.shown(why)}


def publisher_json(publisher: Publisher) -> Json:
    """A publisher with its token, for the project's owner."""
    return {
        "publisherID": str(publisher.publisher_id),
        "projectID": str(publisher.project_id),
        "name": publisher.name,
        "key": publisher.key,
        "token": publisher.token,
        **_restrictions(publisher),
        **_times(publisher),
    }


def publisher_token_json(publisher: Publisher) -> Json:
    """The metadata of a publisher's token, in the form of an access key.

    Source: interface document, 4.4.
    """
    issued_at = publisher.token_issued_at or publisher.created_at
    return {
        "name": publisher_key_name(publisher.publisher_id),
        "identityType": "PUBLISHER",
        "identityID": str(publisher.publisher_id),
        "form": "w3b" if is_access_key(publisher.token) else "jwt",
        "privileges": privileges_json(PUBLISHER_PRIVILEGES),
        **_restrictions(publisher),
        "createdAt": rfc3339(issued_at),
        "updatedAt": rfc3339(issued_at),
    }


def privileges_json(granted: Mapping[str, str]) -> list[Json]:
    """The permission on every group of operations; NO_ACCESS where none is granted."""
    return [
        {
            "name": str(group),
            "desc": DESCRIPTIONS[group],
            "perm": granted.get(group, Permission.NO_ACCESS.name),
        }
        for group in sorted(Group)
    ]


def _restrictions(publisher: Publisher) -> Json:
    expires_at = publisher.token_expires_at
    return {
        **({"eventTypes": publisher.event_types} if publisher.event_types else {}),
        **({"expiredAt": rfc3339(expires_at)} if expires_at else {}),
    }


def _by_change(row: Record) -> tuple[int, int]:
    return row.updated_at, row.created_at


def _by_creation(row: Record) -> int:
    return row.created_at


def cron_job_json(job: CronJob, next_ms: int | None) -> Json:
    """A cron job, and when it is due next."""
    return {
        "cronJobID": str(job.cron_job_id),
        "projectID": str(job.project_id),
        "cronExpressions": job.expression,
        "eventType": job.event_type,
        **({} if next_ms is None else {"nextAt": rfc3339(next_ms)}),
        **_times(job),
    }


def monitor_json(
    monitor: Monitor,
    project: Project,
    cursor: Cursor | None = None,
    newest: int = 0,
    *,
    known: bool = True,
    reachable: bool = True,
) -> Json:
    """A monitor; each kind has its own fields. Source: interface document, 5.8.

    Args:
        cursor: the progress of the monitor; None before it has begun.
        newest: the newest block from which events may be sent.
        known: whether the settings still name the monitor's chain.
        reachable: whether the last request to the chain was answered.
    """
    shared: Json = {
        "projectID": str(monitor.project_id),
        "projectName": project.name,
        "eventType": monitor.event_type,
        "chainID": monitor.chain_id,
        **({"chainName": monitor.chain_name} if monitor.chain_name else {}),
        "paused": monitor.paused,
        "finished": monitor.finished,
        **_progress_json(monitor, cursor, newest, known, reachable),
        **_times(monitor),
    }
    identifier = str(monitor.monitor_id)
    if monitor.kind == CONTRACT_LOG:
        current = monitor.block_current
        if cursor is not None and not monitor.finished:
            current = max(current, cursor.block + 1)
        return {
            "contractlogID": identifier,
            "contractAddress": monitor.address,
            "blockStart": monitor.block_start,
            "blockCurrent": current,
            "blockEnd": monitor.block_end,
            **{f"topic{n}": topic for n, topic in enumerate(monitor.topics)},
            **({"event": monitor.event} if monitor.event else {}),
            **({"abiName": monitor.abi_name} if monitor.abi_name else {}),
            **shared,
        }
    if monitor.kind == CHAIN_TX:
        return {"chaintxID": identifier, "txAddress": monitor.tx_hash, **shared}
    return {"chainHeightID": identifier, "height": monitor.height, **shared}


def contract_abi_json(kept: ContractAbi, project: Project, events: Sequence[str]) -> Json:
    """An ABI of a project and the signatures of its events."""
    return {
        "abiID": str(kept.abi_id),
        "projectID": str(kept.project_id),
        "projectName": project.name,
        "name": kept.name,
        "events": list(events),
        "sizeBytes": len(kept.content),
        **_times(kept),
    }


def monitor_lag(monitor: Monitor, cursor: Cursor, newest: int) -> int:
    """The number of blocks that a monitor has yet to process.

    Args:
        newest: the newest block from which events may be sent.

    Returns:
        The number of blocks; 0 for monitors of transactions and heights.
    """
    if monitor.kind != CONTRACT_LOG:
        return 0
    last = min(newest, monitor.block_end) if monitor.block_end else newest
    return max(0, last - cursor.block)


def _has_told_all(monitor: Monitor, cursor: Cursor) -> bool:
    """Whether a monitor has sent all its events and only waits until they are final."""
    if monitor.kind == CHAIN_TX:
        return cursor.stands
    return 0 < monitor.block_end <= cursor.block


def _progress_json(
    monitor: Monitor, cursor: Cursor | None, newest: int, known: bool, reachable: bool
) -> Json:
    if monitor.finished:
        state = "FINISHED"
    elif not known:
        state = "NO_CHAIN"
    elif monitor.paused:
        state = "PAUSED"
    elif cursor is not None and cursor.error:
        state = "FAILING"
    elif not reachable:
        state = "UNREACHABLE"
    elif cursor is not None and cursor.rewind >= 0:
        state = "TAKING_BACK"
    elif cursor is not None and _has_told_all(monitor, cursor):
        state = "TOLD"
    else:
        state = "ACTIVE"
    if cursor is None:
        return {"state": state}
    lag = 0 if monitor.finished else monitor_lag(monitor, cursor, newest)
    return {
        "state": state,
        "events": cursor.events,
        "removedEvents": cursor.removed,
        "lag": lag,
        "failures": cursor.failures,
        **({"lastError": cursor.error} if cursor.error else {}),
        **({"blockHash": "0x" + cursor.block_hash.hex()} if cursor.block_hash else {}),
    }


def traffic_limit_json(limit: TrafficLimit) -> Json:
    """A traffic limit; its duration is text in Go's format."""
    return {
        "trafficLimitID": str(limit.traffic_limit_id),
        "projectID": str(limit.project_id),
        "threshold": limit.threshold,
        "duration": limit.duration or format_duration(limit.duration_ms),
        "apiType": limit.api_type,
        "publisherThreshold": limit.publisher_threshold,
        "startAt": rfc3339(limit.start_at),
        **_times(limit),
    }


def times_json(rows: Sequence[Record]) -> Json:
    """The earliest `createdAt` and the latest `updatedAt` of several rows."""
    return {
        "createdAt": rfc3339(min(row.created_at for row in rows)),
        "updatedAt": rfc3339(max(row.updated_at for row in rows)),
    }


def _times(record: Record) -> Json:
    return times_json([record])


_LEVELS = ("panic", "fatal", "error", "warn", "info", "debug", "trace")


def log_row_json(row: LogRow) -> Json:
    """A row of the applet log."""
    level = _LEVELS[row.level] if 0 <= row.level < len(_LEVELS) else "unknown"
    return {
        "logTime": rfc3339(row.time_ms),
        "level": level,
        "src": row.source,
        "appletName": row.applet_name,
        "instanceID": str(row.instance_id),
        **({"eventID": row.event_id} if row.event_id else {}),
        "msg": row.text,
    }
