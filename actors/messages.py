"""What actors say to each other. Requests are verbs, answers are participles.

Only control travels here; events travel over the data plane (`actors.wire`), because a
Thespian message costs 0.3 to 0.6 ms on each side and one is in flight per target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fieldbrook.core.settings import Settings
from fieldbrook.observability.health import Trouble
from fieldbrook.observability.metrics import NO_ROW

# ---------------------------------------------------------------- node and supervisor


@dataclass(frozen=True, slots=True)
class Boot:
    """Start the registry, then the gateways; answered by Booted or BootFailed."""

    settings: Settings
    run_dir: Path


@dataclass(frozen=True, slots=True)
class Booted:
    """Every gateway serves. `pids` maps part names to process ids."""

    pids: dict[str, int]


@dataclass(frozen=True, slots=True)
class BootFailed:
    """A part cannot start, and starting it again would not help."""

    part: str
    reason: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Stop taking events, answer those taken; answered by Drained."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Nothing is unanswered any more, or the time for it is over."""


@dataclass(frozen=True, slots=True)
class Inspect:
    """Ask for the state of every child; answered by Inspected."""


@dataclass(frozen=True, slots=True)
class ChildState:
    """One row of Inspected. `since_s` counts from the last change of state."""

    state: str
    pid: int | None
    generation: int
    failures: int
    since_s: float


@dataclass(frozen=True, slots=True)
class Inspected:
    """States of all children by part name."""

    children: dict[str, ChildState]


# ---------------------------------------------------------------- supervisor to children


@dataclass(frozen=True, slots=True)
class Start:
    """To every child: what it is and where things are; `slot` is its row of the metrics."""

    part: str
    generation: int
    settings: Settings
    run_dir: Path
    slot: int = NO_ROW


@dataclass(frozen=True, slots=True)
class Prepare:
    """Comes before Start where a process is made ahead: do what every project needs."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class RouteTo:
    """Reach a project at this socket; `path` None: close when nothing is unanswered."""

    project_id: int
    path: str | None


@dataclass(frozen=True, slots=True)
class TakeOutbox:
    """The project at this socket has sent something: take it and deliver it."""

    project_id: int
    path: str


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A project does not come up: refuse what waits for it."""

    project_id: int


@dataclass(frozen=True, slots=True)
class Crowded:
    """A project does not start, because its account has as many (`limit`) running as it may."""

    project_id: int
    limit: int


@dataclass(frozen=True, slots=True)
class GiveWay:
    """Another project of the account waits for a place: a project that has had no event for a
    moment is to say that it is idle."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A project was removed: nothing that waits for it will ever be handled."""

    project_id: int


@dataclass(frozen=True, slots=True)
class Retire:
    """A project is to exit as soon as no gateway is connected to it."""


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you alive? Answered by Ponged, through the thread that does the work."""

    number: int


@dataclass(frozen=True, slots=True)
class HealthIs:
    """What is wrong in the node, for those who are asked: at most `health.SHOWN` troubles,
    `more` others, those that have ended of late; what the parts do, and how many projects
    are in which state."""

    troubles: tuple[Trouble, ...]
    more: int
    recent: tuple[Trouble, ...]
    parts: Mapping[str, str]
    projects: Mapping[str, int]


# ---------------------------------------------------------------- children to supervisor


@dataclass(frozen=True, slots=True)
class Ready:
    """A child serves. `path` is the socket of a project or of the registry, else None."""

    part: str
    generation: int
    pid: int
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A child cannot serve and says why before it exits."""

    part: str
    reason: str


@dataclass(frozen=True, slots=True)
class Activate:
    """A gateway has events for a project that it has no route to. `account_id` owns the project
    and may have `processes` running at once (None: any number)."""

    project_id: int
    account_id: int = 0
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class Idle:
    """A project has had no event for the idle time."""

    project_id: int
    generation: int


@dataclass(frozen=True, slots=True)
class Sent:
    """A project's handlers have sent something that waits in its outbox for `taker`: a
    chain's part, or "" for the MQTT gateway."""

    project_id: int
    generation: int
    taker: str = ""


@dataclass(frozen=True, slots=True)
class ProjectRemoved:
    """The registry no longer knows a project: stop its actor and remove its store."""

    project_id: int


@dataclass(frozen=True, slots=True)
class Reported:
    """All that is wrong with a child as far as it knows, by state (`observability.health`)."""

    part: str
    generation: int
    troubles: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ponged:
    """Alive. `busy_s` is how long the handler that runs now has been running, 0 at rest;
    `phase` what else a batch is about (`commit`, `answer`, ...) and `phase_s` for how long."""

    part: str
    number: int
    busy_s: float = 0.0
    phase: str = ""
    phase_s: float = 0.0
