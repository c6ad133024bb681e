"""The health of the node, with details that only administrators may see.

Source: ours; the original interface has only `/liveness`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.clock import rfc3339
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.gateway.metrics.processes import read_stat
from fieldbrook.observability import metrics, metrics_table
from fieldbrook.observability.health import MEANINGS, Condition
from fieldbrook.observability.metrics_table import PROJECTS

_PROCESSES_LIMIT = 200  # reading one of them takes about 20 us of the gateway's loop


class HealthCondition(msgspec.Struct, frozen=True, kw_only=True):
    """A health condition of one part. `seconds` is how long it has lasted."""

    part: str
    state: str
    meaning: str
    detail: str
    since: str | UnsetType = UNSET
    seconds: int | UnsetType = UNSET
    until: str | UnsetType = UNSET


class ProcessRow(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the node.

    `project` is the name of the project whose events it handles. `state` is the supervisor's;
    `resting` is a part without a process. `cpuSeconds` counts from the start of the process.
    `restarts` is how often a process of this part has died since the node started.
    """

    part: str
    project: str | UnsetType = UNSET
    state: str
    pid: int | UnsetType = UNSET
    memory_bytes: int | UnsetType = msgspec.field(name="memoryBytes", default=UNSET)
    cpu_seconds: float | UnsetType = msgspec.field(name="cpuSeconds", default=UNSET)
    started_at: str | UnsetType = msgspec.field(name="startedAt", default=UNSET)
    restarts: int


class HealthReply(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions, recent ones (newest first), and the processes.

    `total` also counts conditions that `data` does not list. `parts` has the state of each part,
    `projects` how many projects are in each state. `processes` lists at most 200 of
    `processesTotal`, those of projects last.
    """

    healthy: bool
    data: list[HealthCondition]
    total: int
    recent: list[HealthCondition]
    parts: dict[str, str]
    projects: dict[str, int]
    processes: list[ProcessRow]
    processes_total: int = msgspec.field(name="processesTotal")


async def get_health(call: Call[None, None]) -> HealthReply:
    """Current health conditions, recent ones (newest first), and the node's processes with their
    memory, CPU time and restarts."""
    return current_health(call.context)


def current_health(context: ManagementContext) -> HealthReply:
    """The health of the node as it is now."""
    node_health = context.health()
    now_ms = context.clock()
    rows = _rows()
    return HealthReply(
        healthy=not node_health.all_conditions,
        data=[_condition(condition, now_ms) for condition in node_health.all_conditions],
        total=len(node_health.all_conditions) + node_health.more,
        recent=[_condition(condition, now_ms) for condition in node_health.recent],
        parts=dict(node_health.parts),
        projects=dict(node_health.projects),
        processes=_processes(context, rows, node_health.parts),
        processes_total=len(rows),
    )


def _condition(condition: Condition, now_ms: int) -> HealthCondition:
    end_ms = condition.until_ms or now_ms
    known = bool(condition.since_ms)
    return HealthCondition(
        part=condition.part,
        state=condition.state,
        meaning=MEANINGS[condition.state],
        detail=condition.detail,
        since=rfc3339(condition.since_ms) if known else UNSET,
        seconds=max(0, end_ms - condition.since_ms) // 1000 if known else UNSET,
        until=rfc3339(condition.until_ms) if condition.until_ms else UNSET,
    )


def _rows() -> list[tuple[str, int, int]]:
    """Part, pid and restarts of each row of the metrics table; rows of projects at rest are left
    out when nothing has ever died there."""
    table = metrics_table.shared.table
    if table is None:
        return []
    rows = ((part, pid, int(row[metrics.PROCESS_RESTARTS])) for part, pid, row in table.views())
    return [(part, pid, died) for part, pid, died in rows if pid or died]


def _processes(
    context: ManagementContext, rows: Sequence[tuple[str, int, int]], states: Mapping[str, str]
) -> list[ProcessRow]:
    shown = sorted(rows, key=lambda row: row[0].startswith("project"))[:_PROCESSES_LIMIT]
    return [_process(context, states, *row) for row in shown]


def _process(
    context: ManagementContext, states: Mapping[str, str], part: str, pid: int, restarts: int
) -> ProcessRow:
    usage = read_stat(pid) if pid else None
    state = states.get(part) or ("up" if usage else "resting")
    kind, _, name = part.partition(":")
    project = context.reader.project(int(name)) if kind in ("project", PROJECTS) else None
    row = ProcessRow(
        part=part, project=project.name if project else UNSET, state=state, restarts=restarts
    )
    if usage is None:
        return row
    return msgspec.structs.replace(
        row,
        pid=pid,
        memory_bytes=int(usage.resident),
        cpu_seconds=round(usage.cpu_s, 2),
        started_at=rfc3339(usage.started_ms),
    )


ROUTES: tuple[Route, ...] = (Route("GET", "/health", "GetHealth", get_health, auth=Auth.ADMIN),)
