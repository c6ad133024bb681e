"""The messages between actors. Requests are verbs, answers are participles.

These are control messages only. Events are sent over the data plane (`actors.wire`), because a
Thespian message takes 0.3 to 0.6 ms on each side, with only one in flight per target. In these
messages, a *part* is the name of a process or project, such as `worker:0` or `project:5`.
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

    `cluster` has the hosts of the node's cluster; None if the node belongs to no cluster.
    """

    settings: Settings
    run_dir: Path
    cluster: Membership | None = None


class Booted(msgspec.Struct, frozen=True):
    """The node has booted: every gateway serves.

    `pids` maps parts to process ids. Chains that are slow to start, or could not start, are
    missing.
    """

    pids: dict[str, int]


class BootFailed(msgspec.Struct, frozen=True):
    """The node cannot boot: a process cannot start, and a restart would not help."""

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
    """The states of all children, by part."""

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
    """Tell a gateway the socket of the worker that runs a project; None if no worker runs it.

    If `alone` is set, the worker runs only this project. So if it dies with a single event in
    flight, this event is the cause.
    """

    project_id: int
    path: str | None
    alone: bool = False


class HostsUp(msgspec.Struct, frozen=True):
    """The hosts of the cluster that are up; `me` is this host.

    Attributes:
        hosts: the hosts to which projects belong.
        leaving: hosts that are up, but are giving up their projects.
        undelivered: projects with outbox entries that ran on hosts that have just become silent.
        alone: whether the hosts are less than a majority, so that nothing can be committed.
        pins: by project: the host to which it belongs whenever that is one of `hosts`.
    """

    me: str
    hosts: tuple[str, ...]
    leaving: tuple[str, ...] = ()
    undelivered: tuple[int, ...] = ()
    alone: bool = False
    pins: dict[int, str] = {}


class ProjectRuns(msgspec.Struct, frozen=True):
    """Tell the other hosts whether this host runs a project, and whether the project's outbox has
    entries."""

    project_id: int
    runs: bool
    sends: bool = False


class RunsOn(msgspec.Struct, frozen=True):
    """Another host has started and ended these projects. `replaces` says whether all earlier
    reports of the host are void."""

    host: str
    started: tuple[int, ...]
    ended: tuple[int, ...] = ()
    replaces: bool = False


class ClusterCondition(msgspec.Struct, frozen=True):
    """A health condition of the cluster. Its `part` is `cluster`, `registry` or `host:NAME`."""

    part: str
    state: str
    detail: str


class ClusterConditions(msgspec.Struct, frozen=True):
    """All present conditions of the cluster, as this host detects them; all others have ended."""

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
    """Answer the `Activate` of another host: according to this host, another host owns the
    project."""

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
    """Tell a gateway to refuse the events that wait for a project: it cannot be started."""

    project_id: int


class QuotaReached(msgspec.Struct, frozen=True):
    """Refuse an `Activate`: the project's account already runs `limit` projects, which is its
    quota."""

    project_id: int
    limit: int


class RemoteRefusal(msgspec.Struct, frozen=True):
    """Tell the supervisor that another host does not start a project; it forwards this to
    gateways."""

    answer: Unreachable | QuotaReached | DropProject


class YieldProcess(msgspec.Struct, frozen=True):
    """Have a project report `Idle` after a shorter time without events, because another project of
    its account waits for the quota."""

    project_id: int


class DropProject(msgspec.Struct, frozen=True):
    """Tell a gateway that a project was removed: it refuses waiting events and frees the state."""

    project_id: int


class Retire(msgspec.Struct, frozen=True):
    """Tell a worker to close a project after its queued events; answered by `ProjectEnded`."""

    project_id: int


class RecoverJournal(msgspec.Struct, frozen=True):
    """Have a worker apply the journal of another worker, which cannot start, to the stores;
    answered by `JournalRecovered`."""

    name: str


class Ping(msgspec.Struct, frozen=True):
    """Check that a child is alive; answered by Ponged.

    A gateway answers in its event loop. The actor of a worker answers in the main thread, and
    reports the progress of the runners in `Ponged`. The actor of the registry also answers in its
    main thread.
    """

    number: int


class HealthChanged(msgspec.Struct, frozen=True):
    """The health of the node, sent to the gateways that serve the health routes.

    `conditions` has at most `health.SHOWN` current conditions, `more` is the number of further
    ones, and `recent` has conditions that have ended. `parts` maps processes to their states;
    `projects` counts projects by state.
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

    `state` is the health condition to raise.
    """

    part: str
    reason: str
    state: str = CANNOT_START


class Activate(msgspec.Struct, frozen=True):
    """Ask for the route to a project, for which a gateway has events; it is started if necessary.

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
    """A worker does not run a project any more: the project retired, or its actor `failed`."""

    part: str
    generation: int
    failed: bool


class ProjectRemoved(msgspec.Struct, frozen=True):
    """A project was removed from the registry: stop its actor and remove its store."""

    project_id: int


class JournalRecovered(msgspec.Struct, frozen=True):
    """The journal of a worker is applied to the stores; or `reason` says why that failed."""

    name: str
    reason: str = ""


class DedicatedProjects(msgspec.Struct, frozen=True):
    """All projects with `dedicated = true`; sent by the registry at its start and when they
    change."""

    project_ids: frozenset[int]


class HealthReported(msgspec.Struct, frozen=True):
    """All conditions that a child has detected itself, by state (`observability.health`)."""

    part: str
    generation: int
    conditions: Mapping[str, str]


class Ponged(msgspec.Struct, frozen=True):
    """Answer to Ping.

    `busy_s` is how long the current handler has been running, 0 without one. `phase` is the current
    step of a batch outside handlers (`commit`, `answer`, ...), and `phase_s` is how long the step
    has taken. In a worker they are the values of the project `project_id`.
    """

    part: str
    number: int
    busy_s: float = 0.0
    phase: str = ""
    phase_s: float = 0.0
    project_id: int = 0
