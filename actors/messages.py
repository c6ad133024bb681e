"""The messages between actors. Requests are verbs, answers are participles.

These are control messages only. Events travel over the data plane (`actors.wire`), because a
Thespian message costs 0.3 to 0.6 ms on each side, with only one in flight per target.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from fieldbrook.core.cluster.membership import Membership
from fieldbrook.core.settings import Settings
from fieldbrook.observability.health import CANNOT_START, Condition
from fieldbrook.observability.metrics_table import NO_ROW

# ---------------------------------------------------------------- node and supervisor


class Boot(msgspec.Struct, frozen=True):
    """Start the registry, then the gateways; answered by Booted or BootFailed.

    `cluster` has the hosts of the node's cluster; None when it is in none.
    """

    settings: Settings
    run_dir: Path
    cluster: Membership | None = None


class Booted(msgspec.Struct, frozen=True):
    """The node has booted: every gateway serves. `pids` maps part names to process ids.

    A chain may still be missing when it is late or could not start.
    """

    pids: dict[str, int]


class BootFailed(msgspec.Struct, frozen=True):
    """The node cannot boot: a part cannot start, and a restart would not help."""

    part: str
    reason: str


class Drain(msgspec.Struct, frozen=True):
    """Stop accepting events and answer the accepted ones; answered by Drained."""


class Drained(msgspec.Struct, frozen=True):
    """All accepted events are answered, or the time limit of the drain has passed."""


class Inspect(msgspec.Struct, frozen=True):
    """Ask for the state of every child; answered by Inspected."""


class ChildState(msgspec.Struct, frozen=True):
    """One row of Inspected."""

    state: str
    pid: int | None
    generation: int
    failures: int


class Inspected(msgspec.Struct, frozen=True):
    """States of all children by part name."""

    children: dict[str, ChildState]


# ---------------------------------------------------------------- supervisor to children


class Start(msgspec.Struct, frozen=True):
    """Tell a new child its part, the settings and the folders; `slot` is its metrics row.

    `host` is the name of this host in its cluster, empty when the node runs alone; `is_founder`
    says whether it has founded the cluster.
    """

    part: str
    generation: int
    settings: Settings
    run_dir: Path
    slot: int = NO_ROW
    host: str = ""
    is_founder: bool = False


class RunProject(msgspec.Struct, frozen=True):
    """Tell a worker to run a project; answered by Ready or Failed. `slot` is its metrics row."""

    project_id: int
    generation: int
    slot: int = NO_ROW


class RouteTo(msgspec.Struct, frozen=True):
    """Tell a gateway the socket of the worker that runs a project; None when none does.

    A worker that is `alone` runs only this project, so an event that was alone in flight when it
    died is the cause of its death.
    """

    project_id: int
    path: str | None
    alone: bool = False


class HostsUp(msgspec.Struct, frozen=True):
    """The hosts of the cluster that are there and own something; `me` is this one.

    Attributes:
        hosts: those to which projects belong.
        leaving: those that are there, and give up the projects that they still run.
        undelivered: the projects with outbox entries of hosts that have just become silent.
        alone: whether they are no majority, so that nothing can be committed here.
        pins: by project: the host to which it belongs whenever that is one of `hosts`.
    """

    me: str
    hosts: tuple[str, ...]
    leaving: tuple[str, ...] = ()
    undelivered: tuple[int, ...] = ()
    alone: bool = False
    pins: dict[int, str] = {}


class ProjectRuns(msgspec.Struct, frozen=True):
    """Tell the other hosts whether this one runs a project, and whether its outbox has entries."""

    project_id: int
    runs: bool
    sends: bool = False


class RunsOn(msgspec.Struct, frozen=True):
    """Another host has started and ended these projects; `replaces` what it has said before."""

    host: str
    started: tuple[int, ...]
    ended: tuple[int, ...] = ()
    replaces: bool = False


class ClusterCondition(msgspec.Struct, frozen=True):
    """A health condition of the cluster: `part` is `cluster`, `registry` or `host:NAME`."""

    part: str
    state: str
    detail: str


class ClusterConditions(msgspec.Struct, frozen=True):
    """All conditions that this host sees in its cluster; those that are not in it have ended."""

    conditions: tuple[ClusterCondition, ...]


class ActivateOn(msgspec.Struct, frozen=True):
    """Ask another host to start a project; answered by RemoteRoute or RemoteRefusal.

    The other attributes are those of `Activate`.
    """

    host: str
    project_id: int
    account_id: int = 0
    processes: int | None = None


class NotHome(msgspec.Struct, frozen=True):
    """Answer another host's Activate: by what this host knows, the project belongs elsewhere."""

    project_id: int


class RemoteRoute(msgspec.Struct, frozen=True):
    """Tell the supervisor the socket of the worker that runs a project on another host."""

    project_id: int
    host: str
    socket: str | None
    alone: bool


class DeliverOutbox(msgspec.Struct, frozen=True):
    """Ask a gateway to fetch a project's outbox entries from the worker at this socket."""

    project_id: int
    path: str


class Unreachable(msgspec.Struct, frozen=True):
    """Tell a gateway that a project cannot be started: refuse the events that wait for it."""

    project_id: int


class QuotaReached(msgspec.Struct, frozen=True):
    """Refuse an Activate: the project's account already runs `limit` projects, its quota."""

    project_id: int
    limit: int


class RemoteRefusal(msgspec.Struct, frozen=True):
    """Tell the supervisor that another host does not start a project, to pass it to gateways."""

    answer: Unreachable | QuotaReached | DropProject


class YieldProcess(msgspec.Struct, frozen=True):
    """Have a project report Idle after a short time without events, because another project
    of its account waits."""

    project_id: int


class DropProject(msgspec.Struct, frozen=True):
    """Tell a gateway that a project was removed: refuse its waiting events, free its state."""

    project_id: int


class Retire(msgspec.Struct, frozen=True):
    """Tell a worker to close a project after the events that it has; answered by ProjectEnded."""

    project_id: int


class RecoverJournal(msgspec.Struct, frozen=True):
    """Have a worker bring the stores up to date with the journal of another one, which cannot
    start; answered by JournalRecovered."""

    name: str


class Ping(msgspec.Struct, frozen=True):
    """Check that a child is alive; answered by Ponged.

    A gateway answers through its event loop. The actor of a worker answers itself and reports
    the progress of its runners in Ponged. The actor of the registry answers itself.
    """

    number: int


class HealthChanged(msgspec.Struct, frozen=True):
    """The health of the node, sent to the gateways that serve the health routes.

    `conditions` has at most `health.SHOWN` current conditions, `more` is the number of others, and
    `recent` are conditions that have ended. `parts` maps processes to their states; `projects`
    counts projects by state.
    """

    conditions: tuple[Condition, ...]
    more: int
    recent: tuple[Condition, ...]
    parts: Mapping[str, str]
    projects: Mapping[str, int]


# ---------------------------------------------------------------- children to supervisor


class Ready(msgspec.Struct, frozen=True):
    """A child or a project is ready. `path` is the socket of a worker or of the registry."""

    part: str
    generation: int
    pid: int
    path: str | None = None


class Failed(msgspec.Struct, frozen=True):
    """A child cannot start; it reports the reason before it exits.

    `state` is the health condition that this means.
    """

    part: str
    reason: str
    state: str = CANNOT_START


class Activate(msgspec.Struct, frozen=True):
    """A gateway has events for a project and no route to it: start it if necessary.

    `account_id` is the account that owns the project, and `processes` the account's quota of
    running projects (None: no limit).
    """

    project_id: int
    account_id: int = 0
    processes: int | None = None


class Idle(msgspec.Struct, frozen=True):
    """A project has had no event for the idle time."""

    project_id: int
    generation: int


class OutboxFilled(msgspec.Struct, frozen=True):
    """A project's outbox has entries for `consumer`: a chain's part, or "" for the MQTT gateway."""

    project_id: int
    generation: int
    consumer: str = ""


class ProjectEnded(msgspec.Struct, frozen=True):
    """A worker does not run a project any more: it retired, or its actor `failed`."""

    part: str
    generation: int
    failed: bool


class ProjectRemoved(msgspec.Struct, frozen=True):
    """A project was removed from the registry: stop its actor and remove its store."""

    project_id: int


class JournalRecovered(msgspec.Struct, frozen=True):
    """The journal of a worker is applied to the stores, or the reason why that failed."""

    name: str
    reason: str = ""


class DedicatedProjects(msgspec.Struct, frozen=True):
    """All projects with `dedicated = true`; sent by the registry at its start and when they
    change."""

    project_ids: frozenset[int]


class HealthReported(msgspec.Struct, frozen=True):
    """All conditions that a child reports of itself, by state (`observability.health`)."""

    part: str
    generation: int
    conditions: Mapping[str, str]


class Ponged(msgspec.Struct, frozen=True):
    """Answer to Ping.

    `busy_s` is the time that the current handler has been running, 0 without one. `phase` is
    the step of a batch besides its handlers (`commit`, `answer`, ...), and `phase_s` the time
    that the step has taken. Both are those of the project `project_id` of a worker.
    """

    part: str
    number: int
    busy_s: float = 0.0
    phase: str = ""
    phase_s: float = 0.0
    project_id: int = 0
