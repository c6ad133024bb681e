"""Health conditions of a node: raised by name, shown to operators, and cleared with their cause.

Each process keeps the conditions that it detects itself in a `ProcessHealth`, which sends the
complete list to the supervisor at every change. The supervisor keeps the `Board` of the whole node,
because it runs longer than every other process: when it dies, the whole node is restarted. Gateways
get copies of the board, from which `NodeHealth` makes the answers of the health routes.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus

import msgspec
from msgspec.structs import replace

log = logging.getLogger(__name__)

HUNG = "hung"
DOWN = "down"
CANNOT_START = "cannot_start"
HUNG_GUEST = "hung_guest"
STUCK_BATCH = "stuck_batch"
NO_BROKER = "no_broker"
OLD_BROKER = "old_broker"
NO_CHAIN = "no_chain"
STUCK_TRANSACTIONS = "stuck_transactions"
STUCK_LEASES = "stuck_leases"
NONCES_DIFFER = "nonces_differ"
LOW_FUNDS = "low_funds"
DISK_LOW = "disk_low"
DISK_FULL = "disk_full"
STORE_FULL = "store_full"
STORE_FAILS = "store_fails"
UNREADABLE = "unreadable"
MODULE_UNREADABLE = "module_unreadable"
CLOCK_BACK = "clock_back"
PARKED = "parked"
HOST_SILENT = "host_silent"
JOURNAL_STALLED = "journal_stalled"
FENCED = "fenced"
CLOCK_APART = "clock_apart"
ONE_MORE_LOSS = "one_more_loss_is_an_outage"
CHAIN_BROKEN = "chain_broken"
REGISTRY_BEHIND = "registry_behind"
MEMORY_HIGH = "memory_high"

MEANINGS: dict[str, str] = {
    HUNG: "the process does not answer",
    DOWN: "it has died and is being restarted",
    CANNOT_START: "it cannot start",
    HUNG_GUEST: "a handler does not end by its deadline",
    STUCK_BATCH: "a batch of events takes too long",
    NO_BROKER: "there is no connection to the external MQTT broker",
    OLD_BROKER: "messages that the broker of an earlier version holds cannot be delivered",
    NO_CHAIN: "no RPC endpoint of the chain is usable",
    STUCK_TRANSACTIONS: "a transaction is refused, and later ones of its account wait for it",
    STUCK_LEASES: "a project that does not answer holds nonces that others wait for",
    LOW_FUNDS: "an account that sends transactions can pay only a few more",
    NONCES_DIFFER: "the chain has fewer transactions of an account than the node saw there",
    DISK_LOW: "the disk is nearly full",
    DISK_FULL: "the disk is full",
    STORE_FULL: "the store has reached its size limit",
    STORE_FAILS: "the store cannot be read or written",
    UNREADABLE: "stored data cannot be read",
    MODULE_UNREADABLE: "the file of a WebAssembly module cannot be read",
    CLOCK_BACK: "the system clock was set back",
    MEMORY_HIGH: "it used too much memory and is started again",
    HOST_SILENT: "the other host is not heard",
    JOURNAL_STALLED: "no majority of hosts stores what projects commit",
    FENCED: "another host has taken over projects that this one still ran",
    CLOCK_APART: "the clocks of two hosts are more than a second apart",
    ONE_MORE_LOSS: "when one more host is lost, nothing is committed",
    CHAIN_BROKEN: "a record of the replicated stream is missing or damaged",
    REGISTRY_BEHIND: "this host lacks changes of the registry that another one has",
    PARKED: "messages of handlers are held back until an operator releases them",
}
"""Every kind of condition with its meaning. What to do about it: docs/how-to/monitor.md."""

_OF_BROKER = (NO_BROKER, OLD_BROKER)

OK = "ok"
NODE, DISK, CLOCK, SECRETS, OUTBOX = "node", "disk", "clock", "secrets", "outbox"

HOLD_S = 5.0  # a condition that returns within this time has not ended: flapping logs one line
RECENT = 100
SHOWN = 200  # conditions sent to the gateways; the others are only counted
_PROJECTS_SHOWN = 20
_PROJECT_PART_PREFIX = "project:"
_PROJECT_COMPONENT_PREFIX = "Project/"
_DETAIL_LIMIT = 512


class Condition(msgspec.Struct, frozen=True):
    """One health condition of one part of the node: a process, the disk, the clock and others.

    `state` is its kind, a key of `MEANINGS`. Times are Unix ms; `until_ms` is 0 while it lasts.
    """

    part: str
    state: str
    detail: str
    since_ms: int
    until_ms: int = 0


class ProcessHealth:
    """The conditions that a process detects itself, as details by state.

    `report` is called with all of them at every change.
    """

    def __init__(self, report: Callable[[Mapping[str, str]], None] = lambda _: None) -> None:
        self._report = report
        self._details: dict[str, str] = {}

    def __contains__(self, state: str) -> bool:
        return state in self._details

    @property
    def has_conditions(self) -> bool:
        """Whether any condition is raised."""
        return bool(self._details)

    def raise_(self, state: str, detail: str) -> None:
        """Raise a condition; while it is raised, further calls do nothing."""
        if state not in self._details:
            self._details[state] = detail[:_DETAIL_LIMIT]
            self._report(dict(self._details))

    def clear(self, *states: str) -> None:
        """Clear conditions; states that are not raised are ignored."""
        cleared = self._details.keys() & set(states)
        if cleared:
            self._details = {s: text for s, text in self._details.items() if s not in cleared}
            self._report(dict(self._details))


class _Entry(msgspec.Struct):
    condition: Condition
    cleared_at: float | None = None  # monotonic time
    reported: bool = False  # by the process itself, not detected by the supervisor


class Board:
    """All conditions of a node. Each is logged once when it is raised and once when it ends.

    A cleared condition ends, and is hidden, only when it has not returned for `hold_s` seconds.
    """

    def __init__(
        self, monotonic: Callable[[], float], now_ms: Callable[[], int], hold_s: float = HOLD_S
    ) -> None:
        self._monotonic = monotonic
        self._now_ms = now_ms
        self.hold_s = hold_s
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._recent: collections.deque[Condition] = collections.deque(maxlen=RECENT)
        self.changed = False

    def raise_(self, part: str, state: str, detail: str, *, reported: bool = False) -> None:
        """Raise a condition of a part; `reported` is true when the part itself reported it."""
        entry = self._entries.get((part, state))
        if entry is not None:
            entry.cleared_at, entry.reported = None, reported
            return
        condition = Condition(part, state, detail[:_DETAIL_LIMIT], self._now_ms())
        self._entries[part, state] = _Entry(condition, reported=reported)
        self.changed = True
        log.warning("%s: %s: %s (%s)", part, state, MEANINGS[state], condition.detail)

    def update(self, part: str, state: str, detail: str) -> None:
        """Raise a condition, or replace its detail when it is already raised."""
        self.raise_(part, state, detail)
        entry = self._entries[part, state]
        if entry.condition.detail != detail[:_DETAIL_LIMIT]:
            entry.condition = replace(entry.condition, detail=detail[:_DETAIL_LIMIT])
            self.changed = True

    def clear(self, part: str, *states: str) -> None:
        """Clear conditions of a part; they end after `hold_s`, see `end_cleared`."""
        for state in states:
            entry = self._entries.get((part, state))
            if entry is not None and entry.cleared_at is None:
                entry.cleared_at = self._monotonic()

    def report(self, part: str, conditions: Mapping[str, str]) -> None:
        """Apply a part's complete report; conditions that it no longer reports are cleared."""
        for state, detail in conditions.items():
            if state in MEANINGS:
                self.raise_(part, state, detail, reported=True)
        gone = [
            state
            for (name, state), entry in self._entries.items()
            if name == part and entry.reported and state not in conditions
        ]
        self.clear(part, *gone)

    def remove(self, part: str) -> None:
        """End all conditions of a part that no longer exists."""
        for key in [key for key in self._entries if key[0] == part]:
            self._end(key)

    def end_cleared(self) -> None:
        """End the conditions cleared at least `hold_s` ago; call it every second or two."""
        limit = self._monotonic() - self.hold_s
        for key, entry in list(self._entries.items()):
            if entry.cleared_at is not None and entry.cleared_at <= limit:
                self._end(key)

    def _end(self, key: tuple[str, str]) -> None:
        condition = self._entries.pop(key).condition
        until_ms = self._now_ms()
        self._recent.append(replace(condition, until_ms=until_ms))
        self.changed = True
        lasted_s = max(0, until_ms - condition.since_ms) / 1000
        log.warning("%s: %s has ended after %.0f s", condition.part, condition.state, lasted_s)

    @property
    def active(self) -> tuple[Condition, ...]:
        """The current conditions, the oldest first."""
        return tuple(entry.condition for entry in self._entries.values())

    @property
    def recent(self) -> tuple[Condition, ...]:
        """The last conditions that have ended, the newest first."""
        return tuple(reversed(self._recent))


class ClockWatch:
    """Detects that the wall clock was set back, by comparing it with the monotonic clock.

    The condition ends when the wall clock reaches its old maximum again, or after `REMEMBERED_S`,
    because a clock that was corrected by a year would take a year to reach the maximum.
    """

    TOLERATED_MS = 2_000
    REMEMBERED_S = 600.0

    def __init__(self, monotonic: float, wall_ms: int) -> None:
        self._last = monotonic, wall_ms
        self._high_ms = wall_ms
        self._since: float | None = None
        self.by_ms = 0

    def is_behind(self, monotonic: float, wall_ms: int) -> bool:
        """Return whether the wall clock is behind its maximum; `by_ms` is the size of the jump."""
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


class NodeHealth(msgspec.Struct, frozen=True):
    """The health of the node, for one gateway.

    `parts` maps all processes except those of projects to their states; `projects` counts
    projects by state. `more` counts the conditions that are not in `conditions`. `silent_s` is the
    time since the supervisor's last message. `registry` is the reason why this gateway cannot
    read the registry; "" when it can.
    """

    conditions: tuple[Condition, ...] = ()
    recent: tuple[Condition, ...] = ()
    more: int = 0
    parts: Mapping[str, str] = msgspec.field(default_factory=dict)
    projects: Mapping[str, int] = msgspec.field(default_factory=dict)
    silent_s: float = 0.0
    silent_limit_s: float = 10.0
    registry: str = ""
    draining: bool = False

    @property
    def all_conditions(self) -> tuple[Condition, ...]:
        """The conditions of the board, and those that this gateway detects itself."""
        own = []
        if self.registry:
            own.append(Condition("registry", UNREADABLE, self.registry, 0))
        if self.silent_s > self.silent_limit_s:
            own.append(
                Condition(NODE, HUNG, f"the supervisor is silent for {self.silent_s:.0f} s", 0)
            )
        return (*own, *self.conditions)


def liveness(node: NodeHealth) -> tuple[int, dict[str, str]]:
    """Return status and body of `/liveness`: `{"<component>": "ok" | "<error>"}`.

    The status is 503 only when this gateway cannot read the registry and therefore cannot admit
    events; otherwise it is 200. The other conditions can end without a restart, and restarting the
    node for them would make them worse. Conditions are named without details, because the route
    needs no authentication.

    Source: interface document, 1.2.
    """
    body = dict.fromkeys(("Registry", "Broker", "Disk", "Clock", "Secrets"), OK)
    body |= {_component(part): OK for part in node.parts}
    wrong: dict[str, list[str]] = {}
    for condition in node.all_conditions:
        name = "Broker" if condition.state in _OF_BROKER else _component(condition.part)
        wrong.setdefault(name, []).append(f"{condition.state}: {MEANINGS[condition.state]}")
    projects = [name for name in wrong if name.startswith(_PROJECT_COMPONENT_PREFIX)]
    unlisted = node.more + sum(len(wrong.pop(name)) for name in projects[_PROJECTS_SHOWN:])
    body |= {name: "; ".join(texts) for name, texts in wrong.items()}
    if unlisted:
        body["Projects"] = f"{unlisted} more conditions are not listed"
    status = HTTPStatus.SERVICE_UNAVAILABLE if node.registry else HTTPStatus.OK
    return int(status), body


def readiness(node: NodeHealth) -> tuple[int, list[str]]:
    """Return status and reasons of `/readiness`: whether clients should send events to this node
    now.

    The status is 503 while the node stops, while this gateway cannot read the registry, while
    the disk is full, and while the supervisor is silent, because no project can be started then.
    """
    reasons = ["the node is stopping"] if node.draining else []
    reasons += [
        f"{condition.part}: {MEANINGS[condition.state]}"
        for condition in node.all_conditions
        if condition.state == DISK_FULL
        or (condition.part == "registry" and condition.state == UNREADABLE)
        or (condition.part == NODE and condition.state == HUNG)
    ]
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return int(status), list(dict.fromkeys(reasons))


def _component(part: str) -> str:
    kind, colon, name = part.partition(":")
    return f"{kind.capitalize()}/{name}" if colon else kind.capitalize()


def worst(conditions: Iterable[Condition]) -> list[Condition]:
    """Return at most `SHOWN` conditions: first those of the node's own processes, then the
    newest."""
    ordered = sorted(
        conditions, key=lambda c: (c.part.startswith(_PROJECT_PART_PREFIX), -c.since_ms)
    )
    return ordered[:SHOWN]
