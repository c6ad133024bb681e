"""The health of the node, with details that only administrators may see.

Source: ours; the original interface has only `/liveness`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.clock import rfc3339
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.observability import metrics, metrics_table
from fieldbrook.observability.health import MEANINGS, Condition
from fieldbrook.system.kernel import read_stat

_SHOWN = 200  # reading a process takes about 20 us of the gateway's loop


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

    A worker has the number of `projects` that it runs; `project` is the name of the one that has a
    worker of its own. `state` is the supervisor's; `resting` is a part without a process.
    `cpuSeconds` counts from the start of the process. `restarts` is how often a process of this
    part has died since the node started.
    """

    part: str
    project: str | UnsetType = UNSET
    projects: int | UnsetType = UNSET
    state: str
    pid: int | UnsetType = UNSET
    memory_bytes: int | UnsetType = msgspec.field(name="memoryBytes", default=UNSET)
    cpu_seconds: float | UnsetType = msgspec.field(name="cpuSeconds", default=UNSET)
    started_at: str | UnsetType = msgspec.field(name="startedAt", default=UNSET)
    restarts: int


class ProjectLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A project that runs, or has died since the node started.

    `worker` is the part that runs it; a project without one is at rest. `busySeconds` is the time
    that workers have spent on it since the node started. `memoryBytes` are its kept instances and
    what it has yet to write to its store. `restarts` is how often it has died. A project without
    metrics of its own (setting `metrics_projects`) is listed while it runs, with what it has used
    since it started.
    """

    project: str
    project_id: str = msgspec.field(name="projectID")
    worker: str | UnsetType = UNSET
    busy_seconds: float = msgspec.field(name="busySeconds")
    memory_bytes: int = msgspec.field(name="memoryBytes")
    restarts: int


class HealthReply(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions, recent ones (newest first), the processes, and the projects in them.

    `total` also counts conditions that `data` does not list. `parts` has the state of each part,
    `projects` how many projects are in each state. `processes` lists at most 200 of
    `processesTotal`, workers of one project last. `running` lists the at most 200 busiest
    projects.
    """

    healthy: bool
    data: list[HealthCondition]
    total: int
    recent: list[HealthCondition]
    parts: dict[str, str]
    projects: dict[str, int]
    processes: list[ProcessRow]
    processes_total: int = msgspec.field(name="processesTotal")
    running: list[ProjectLoad]


class _Rows:
    """The rows of the metrics table for processes and projects.

    Parts without a process are left out if none of their processes has ever died. The row of a
    project has the pid of its worker.
    """

    def __init__(self) -> None:
        table = metrics_table.shared.table
        self.processes: list[tuple[str, int, int]] = []  # part, pid, restarts
        self.projects: list[tuple[int, int, memoryview[float]]] = []  # id, pid, numbers
        self.counts: Counter[int] = Counter()  # the number of projects, by pid
        for part, pid, row in table.views() if table is not None else ():
            restarts = int(row[metrics.PROCESS_RESTARTS])
            kind, _, name = part.partition(":")
            if kind not in ("project", metrics_table.PROJECTS):
                if pid or restarts:
                    self.processes.append((part, pid, restarts))
                continue
            self.counts[pid] += 1
            if pid or (restarts and kind == "project"):
                self.projects.append((int(name), pid, row))


async def get_health(call: Call[None, None]) -> HealthReply:
    """Current health conditions, recent ones (newest first), the node's processes with their
    memory, CPU time and restarts, and which worker runs which project."""
    return current_health(call.context)


def current_health(context: ManagementContext) -> HealthReply:
    """Return the present health of the node."""
    node_health = context.health()
    now_ms = context.clock()
    rows = _Rows()
    return HealthReply(
        healthy=not node_health.all_conditions,
        data=[_condition(condition, now_ms) for condition in node_health.all_conditions],
        total=len(node_health.all_conditions) + node_health.more,
        recent=[_condition(condition, now_ms) for condition in node_health.recent],
        parts=dict(node_health.parts),
        projects=dict(node_health.projects),
        processes=_processes(context, rows, node_health.parts),
        processes_total=len(rows.processes),
        running=_running(context, rows),
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


def _processes(
    context: ManagementContext, rows: _Rows, states: Mapping[str, str]
) -> list[ProcessRow]:
    ordered = sorted(rows.processes, key=lambda row: row[0].startswith(metrics_table.DEDICATED))
    return [_process(context, rows, states, *row) for row in ordered[:_SHOWN]]


def _process(
    context: ManagementContext,
    rows: _Rows,
    states: Mapping[str, str],
    part: str,
    pid: int,
    restarts: int,
) -> ProcessRow:
    usage = read_stat(pid) if pid else None
    state = states.get(part) or ("up" if usage else "resting")
    project_id = part.removeprefix(metrics_table.DEDICATED)
    project = context.reader.project(int(project_id)) if project_id.isdecimal() else None
    row = ProcessRow(
        part=part, project=project.name if project else UNSET, state=state, restarts=restarts
    )
    if usage is None:
        return row
    return msgspec.structs.replace(
        row,
        projects=rows.counts[pid] if part.startswith("worker:") else UNSET,
        pid=pid,
        memory_bytes=int(usage.resident),
        cpu_seconds=round(usage.cpu_s, 2),
        started_at=rfc3339(usage.started_ms),
    )


def _running(context: ManagementContext, rows: _Rows) -> list[ProjectLoad]:
    workers = {pid: part for part, pid, _ in rows.processes if pid}
    busiest = sorted(rows.projects, key=lambda found: _busy_s(found[2]), reverse=True)
    found = []
    for project_id, pid, row in busiest[:_SHOWN]:
        project = context.reader.project(project_id)
        if project is not None:
            found.append(
                ProjectLoad(
                    project=project.name,
                    project_id=str(project_id),
                    worker=workers.get(pid, UNSET),
                    busy_seconds=round(_busy_s(row), 2),
                    memory_bytes=int(row[metrics.PROJECT_MEMORY]),
                    restarts=int(row[metrics.PROCESS_RESTARTS] - row[metrics.RESTARTS_BEFORE]),
                )
            )
    return found


def _busy_s(row: memoryview[float]) -> float:
    """Return the time that workers have spent on the project with this row."""
    return row[metrics.BUSY_SECONDS] - row[metrics.BUSY_BEFORE]


ROUTES: tuple[Route, ...] = (Route("GET", "/health", "GetHealth", get_health, auth=Auth.ADMIN),)
