"""Health conditions of a node: named troubles that are raised, shown, and cleared when they end.

A process keeps the troubles that it detects itself in a `Reporter`, which sends the complete
list to the supervisor at every change. The supervisor keeps the `Board` of the whole node: it
outlives every other process, and when it dies the whole node is restarted. Gateways get copies
of the board, from which `Condition` makes the answers of the health routes.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus

log = logging.getLogger(__name__)

HUNG = "hung"
DOWN = "down"
CANNOT_START = "cannot_start"
HUNG_GUEST = "hung_guest"
STUCK_BATCH = "stuck_batch"
NO_BROKER = "no_broker"
BROKER_FULL = "broker_full"
BROKER_LIMIT = "broker_limit"
NO_CHAIN = "no_chain"
STUCK_TRANSACTIONS = "stuck_transactions"
STUCK_LEASES = "stuck_leases"
DISK_LOW = "disk_low"
DISK_FULL = "disk_full"
STORE_FULL = "store_full"
STORE_FAILS = "store_fails"
UNREADABLE = "unreadable"
MODULE_UNREADABLE = "module_unreadable"
CLOCK_BACK = "clock_back"
PARKED = "parked"
SHARDS_DIE = "shards_die"

MEANINGS: dict[str, str] = {
    HUNG: "does not answer",
    DOWN: "has died and is being started again",
    CANNOT_START: "cannot start",
    HUNG_GUEST: "a handler does not end in time",
    STUCK_BATCH: "a batch does not come to its end",
    NO_BROKER: "no connection to the MQTT broker",
    BROKER_FULL: "the MQTT broker stores no messages",
    BROKER_LIMIT: "the MQTT broker refuses devices, because a limit of what it keeps is reached",
    NO_CHAIN: "no endpoint of the chain answers as it must",
    STUCK_TRANSACTIONS: "a transaction is refused, and its account's later ones wait for it",
    STUCK_LEASES: "a project that does not answer has nonces that others wait for",
    DISK_LOW: "the disk is nearly full",
    DISK_FULL: "the disk is full",
    STORE_FULL: "the store has reached its size limit",
    STORE_FAILS: "the store refuses to read or write",
    UNREADABLE: "what is stored cannot be read",
    MODULE_UNREADABLE: "a module cannot be read",
    CLOCK_BACK: "the clock went back",
    PARKED: "what handlers sent is not delivered until an operator releases it",
    SHARDS_DIE: "processes that run its handlers ahead die or hang",
}
"""Every state with its meaning. docs/operating.md says what an operator does about it."""

_OF_BROKER = (NO_BROKER, BROKER_FULL, BROKER_LIMIT)

OK = "ok"
NODE, DISK, CLOCK, SECRETS, OUTBOX = "node", "disk", "clock", "secrets", "outbox"

HOLD_S = 5.0  # a trouble that returns within this time has not ended: flapping logs one line
RECENT = 100
SHOWN = 200  # troubles sent to the gateways; the others are only counted
_PROJECTS_SHOWN = 20
_PROJECT = "project:"
_PROJECTS = "Project/"
_DETAIL_LIMIT = 512


@dataclass(frozen=True, slots=True)
class Trouble:
    """One health condition of one part. Times are Unix ms; `until_ms` is 0 while it lasts."""

    part: str
    state: str
    detail: str
    since_ms: int
    until_ms: int = 0


class Reporter:
    """The troubles that a process reports itself; `tell` gets all of them at every change."""

    def __init__(self, tell: Callable[[Mapping[str, str]], None] = lambda troubles: None) -> None:
        self._tell = tell
        self._now: dict[str, str] = {}

    def __contains__(self, state: str) -> bool:
        return state in self._now

    @property
    def troubled(self) -> bool:
        """Whether this process has any trouble."""
        return bool(self._now)

    def begin(self, state: str, detail: str) -> None:
        """Raise a trouble; while it is raised, further calls do nothing."""
        if state not in self._now:
            self._now[state] = detail[:_DETAIL_LIMIT]
            self._tell(dict(self._now))

    def end(self, *states: str) -> None:
        """Clear troubles."""
        over = self._now.keys() & set(states)
        if over:
            self._now = {s: detail for s, detail in self._now.items() if s not in over}
            self._tell(dict(self._now))


@dataclass(slots=True)
class _Entry:
    trouble: Trouble
    over: float | None = None  # monotonic time since which it seems to be over
    reported: bool = False


class Board:
    """All troubles of a node. Each is logged once when it begins and once when it ends.

    A cleared trouble ends, and is hidden, only after `hold_s` seconds without a return.
    """

    def __init__(
        self, monotonic: Callable[[], float], now_ms: Callable[[], int], hold_s: float = HOLD_S
    ) -> None:
        self._monotonic = monotonic
        self._now_ms = now_ms
        self.hold_s = hold_s
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._recent: collections.deque[Trouble] = collections.deque(maxlen=RECENT)
        self.changed = False

    def begin(self, part: str, state: str, detail: str, *, reported: bool = False) -> None:
        """Raise a trouble of a part; `reported` is true when the part itself reported it."""
        entry = self._entries.get((part, state))
        if entry is not None:
            entry.over, entry.reported = None, reported
            return
        trouble = Trouble(part, state, detail[:_DETAIL_LIMIT], self._now_ms())
        self._entries[part, state] = _Entry(trouble, None, reported)
        self.changed = True
        log.warning("%s: %s: %s (%s)", part, state, MEANINGS[state], trouble.detail)

    def renew(self, part: str, state: str, detail: str) -> None:
        """As `begin`, but replaces the detail of a trouble that is already raised."""
        self.begin(part, state, detail)
        entry = self._entries[part, state]
        if entry.trouble.detail != detail[:_DETAIL_LIMIT]:
            entry.trouble = replace(entry.trouble, detail=detail[:_DETAIL_LIMIT])
            self.changed = True

    def end(self, part: str, *states: str) -> None:
        """Clear troubles of a part; they end after `hold_s`, see `settle`."""
        for state in states:
            entry = self._entries.get((part, state))
            if entry is not None and entry.over is None:
                entry.over = self._monotonic()

    def report(self, part: str, troubles: Mapping[str, str]) -> None:
        """Take over a part's complete list; reported troubles that are not in it are cleared."""
        for state, detail in troubles.items():
            if state in MEANINGS:
                self.begin(part, state, detail, reported=True)
        gone = [
            state
            for (name, state), entry in self._entries.items()
            if name == part and entry.reported and state not in troubles
        ]
        self.end(part, *gone)

    def forget(self, part: str) -> None:
        """End all troubles of a part that no longer exists."""
        for key in [key for key in self._entries if key[0] == part]:
            self._finish(key)

    def settle(self) -> None:
        """End the troubles cleared for at least `hold_s`; call it every second or two."""
        limit = self._monotonic() - self.hold_s
        ended = [key for key, e in self._entries.items() if e.over is not None and e.over <= limit]
        for key in ended:
            self._finish(key)

    def _finish(self, key: tuple[str, str]) -> None:
        trouble = self._entries.pop(key).trouble
        until_ms = self._now_ms()
        self._recent.append(replace(trouble, until_ms=until_ms))
        self.changed = True
        lasted_s = max(0, until_ms - trouble.since_ms) / 1000
        log.warning("%s: %s has ended after %.0f s", trouble.part, trouble.state, lasted_s)

    @property
    def active(self) -> tuple[Trouble, ...]:
        """The current troubles, the oldest first."""
        return tuple(entry.trouble for entry in self._entries.values())

    @property
    def recent(self) -> tuple[Trouble, ...]:
        """The last troubles that have ended, the newest first."""
        return tuple(reversed(self._recent))


class ClockWatch:
    """Detects that the wall clock went back, by comparing it with the monotonic clock.

    The condition ends when the wall clock reaches its old maximum again, or after
    `REMEMBERED_S`: a clock corrected by a year would take a year to reach it.
    """

    TOLERATED_MS = 2_000
    REMEMBERED_S = 600.0

    def __init__(self, monotonic: float, wall_ms: int) -> None:
        self._last = monotonic, wall_ms
        self._high_ms = wall_ms
        self._since: float | None = None
        self.by_ms = 0

    def look(self, monotonic: float, wall_ms: int) -> bool:
        """Whether the wall clock is behind its maximum; `by_ms` holds the size of the jump."""
        before, before_ms = self._last
        self._last = monotonic, wall_ms
        jumped_ms = before_ms + int((monotonic - before) * 1000) - wall_ms
        if jumped_ms > self.TOLERATED_MS:
            self.by_ms, self._since = jumped_ms, monotonic
        self._high_ms = max(self._high_ms, wall_ms)
        if self._since is not None and (
            wall_ms >= self._high_ms or monotonic - self._since > self.REMEMBERED_S
        ):
            self._since, self._high_ms = None, wall_ms
        return self._since is not None


@dataclass(frozen=True)
class Condition:
    """The health of the node as one gateway sees it.

    `parts` maps all processes except those of projects to their states; `projects` counts
    projects by state. `more` counts the troubles that are not in `troubles`. `silent_s` is the
    time since the supervisor's last message. `registry` is the reason why this gateway cannot
    read the registry; "" when it can.
    """

    troubles: tuple[Trouble, ...] = ()
    recent: tuple[Trouble, ...] = ()
    more: int = 0
    parts: Mapping[str, str] = field(default_factory=dict)
    projects: Mapping[str, int] = field(default_factory=dict)
    silent_s: float = 0.0
    silent_limit_s: float = 10.0
    registry: str = ""
    draining: bool = False

    @property
    def all_troubles(self) -> tuple[Trouble, ...]:
        """The troubles of the board, and those that this gateway detects itself."""
        own = []
        if self.registry:
            own.append(Trouble("registry", UNREADABLE, self.registry, 0))
        if self.silent_s > self.silent_limit_s:
            own.append(
                Trouble(NODE, HUNG, f"the supervisor is silent for {self.silent_s:.0f} s", 0)
            )
        return (*own, *self.troubles)


def liveness(condition: Condition) -> tuple[int, dict[str, str]]:
    """Status and body of `/liveness`: `{"<component>": "ok" | "<error>"}`.

    The status is 503 only when this gateway cannot read the registry and therefore cannot admit
    events; otherwise it is 200. Other troubles can end without a restart, and restarting the
    node for them would make them worse. Troubles are named without details, because the route
    needs no authentication.

    Source: interface document, 1.2.
    """
    body = dict.fromkeys(("Registry", "Broker", "Disk", "Clock", "Secrets"), OK)
    body |= {_component(part): OK for part in condition.parts}
    wrong: dict[str, list[str]] = {}
    for trouble in condition.all_troubles:
        name = "Broker" if trouble.state in _OF_BROKER else _component(trouble.part)
        wrong.setdefault(name, []).append(f"{trouble.state}: {MEANINGS[trouble.state]}")
    projects = [name for name in wrong if name.startswith(_PROJECTS)]
    for name in projects[_PROJECTS_SHOWN:]:
        del wrong[name]
    body |= {name: "; ".join(texts) for name, texts in wrong.items()}
    unseen = len(projects) - _PROJECTS_SHOWN + condition.more
    if unseen > 0:
        body["Projects"] = f"{unseen} more have troubles"
    status = HTTPStatus.SERVICE_UNAVAILABLE if condition.registry else HTTPStatus.OK
    return int(status), body


def readiness(condition: Condition) -> tuple[int, list[str]]:
    """Status and reasons of `/readiness`: whether clients should send events here now.

    The status is 503 while the node stops, while this gateway cannot read the registry, while
    the disk is full, and while the supervisor is silent, because no project can be started then.
    """
    reasons = ["the node is stopping"] if condition.draining else []
    reasons += [
        f"{trouble.part}: {MEANINGS[trouble.state]}"
        for trouble in condition.all_troubles
        if trouble.state == DISK_FULL
        or (trouble.part == "registry" and trouble.state == UNREADABLE)
        or (trouble.part == NODE and trouble.state == HUNG)
    ]
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return int(status), list(dict.fromkeys(reasons))


def _component(part: str) -> str:
    kind, colon, name = part.partition(":")
    return f"{kind.capitalize()}/{name}" if colon else kind.capitalize()


def worst(troubles: Iterable[Trouble]) -> list[Trouble]:
    """At most `SHOWN` troubles: those of the node's own parts first, then the newest."""
    ordered = sorted(troubles, key=lambda t: (t.part.startswith(_PROJECT), -t.since_ms))
    return ordered[:SHOWN]
