"""What can be wrong with a node, by name: each trouble begins, is shown, and ends by itself.

A process that knows of a trouble of its own holds it in a `Reporter` and tells the
supervisor all it has whenever that changes. The supervisor keeps the `Board` of the whole
node: it outlives every other process, and when it dies the node is started whole. Gateways
get copies of the board, which `Condition` turns into answers.
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
"""Every state and what it says of its part. What to do about it: docs/operating.md."""

_OF_BROKER = (NO_BROKER, BROKER_FULL, BROKER_LIMIT)

OK = "ok"
NODE, DISK, CLOCK, SECRETS, OUTBOX = "node", "disk", "clock", "secrets", "outbox"

HOLD_S = 5.0  # a trouble that comes back within this has not ended: no line for each time
RECENT = 100
SHOWN = 200  # troubles that travel at once; the rest is a number
_PROJECTS_SHOWN = 20
_PROJECT = "project:"
_PROJECTS = "Project/"
_DETAIL_LIMIT = 512


@dataclass(frozen=True, slots=True)
class Trouble:
    """One state of one part. Times are Unix milliseconds; `until_ms` is 0 while it lasts."""

    part: str
    state: str
    detail: str
    since_ms: int
    until_ms: int = 0


class Reporter:
    """The troubles a process knows of itself; `tell` gets all of them at every change."""

    def __init__(self, tell: Callable[[Mapping[str, str]], None] = lambda troubles: None) -> None:
        self._tell = tell
        self._now: dict[str, str] = {}

    def __contains__(self, state: str) -> bool:
        return state in self._now

    @property
    def troubled(self) -> bool:
        """Whether anything is wrong."""
        return bool(self._now)

    def begin(self, state: str, detail: str) -> None:
        """Something is wrong; said once, however often it is seen."""
        if state not in self._now:
            self._now[state] = detail[:_DETAIL_LIMIT]
            self._tell(dict(self._now))

    def end(self, *states: str) -> None:
        """It is over."""
        over = self._now.keys() & set(states)
        if over:
            self._now = {s: detail for s, detail in self._now.items() if s not in over}
            self._tell(dict(self._now))


@dataclass(slots=True)
class _Entry:
    trouble: Trouble
    over: float | None = None  # when it seemed to be over
    reported: bool = False


class Board:
    """All troubles of a node. Each is logged once when it begins and once when it ends.

    A trouble ends when it has not come back for `hold_s`; until then it is shown.
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
        """A part has a trouble; `reported` when it says so itself."""
        entry = self._entries.get((part, state))
        if entry is not None:
            entry.over, entry.reported = None, reported
            return
        trouble = Trouble(part, state, detail[:_DETAIL_LIMIT], self._now_ms())
        self._entries[part, state] = _Entry(trouble, None, reported)
        self.changed = True
        log.warning("%s: %s: %s (%s)", part, state, MEANINGS[state], trouble.detail)

    def renew(self, part: str, state: str, detail: str) -> None:
        """As `begin`; where the part has the trouble already, this is the detail from now on."""
        self.begin(part, state, detail)
        entry = self._entries[part, state]
        if entry.trouble.detail != detail[:_DETAIL_LIMIT]:
            entry.trouble = replace(entry.trouble, detail=detail[:_DETAIL_LIMIT])
            self.changed = True

    def end(self, part: str, *states: str) -> None:
        """A part seems to be rid of some troubles."""
        for state in states:
            entry = self._entries.get((part, state))
            if entry is not None and entry.over is None:
                entry.over = self._monotonic()

    def report(self, part: str, troubles: Mapping[str, str]) -> None:
        """All that a part knows of itself; what it no longer names is over."""
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
        """A part is no longer there."""
        for key in [key for key in self._entries if key[0] == part]:
            self._finish(key)

    def settle(self) -> None:
        """End what has been over for long enough; call it every second or two."""
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
        """What is wrong now, the oldest first."""
        return tuple(entry.trouble for entry in self._entries.values())

    @property
    def recent(self) -> tuple[Trouble, ...]:
        """The last troubles that have ended, the newest first."""
        return tuple(reversed(self._recent))


class ClockWatch:
    """Notices that the wall clock went back, by the clock that cannot.

    It is over when the wall clock has come to where it was, or after `REMEMBERED_S`: a clock
    that was put right by a year never comes back to where it was.
    """

    TOLERATED_MS = 2_000
    REMEMBERED_S = 600.0

    def __init__(self, monotonic: float, wall_ms: int) -> None:
        self._last = monotonic, wall_ms
        self._high_ms = wall_ms
        self._since: float | None = None
        self.by_ms = 0

    def look(self, monotonic: float, wall_ms: int) -> bool:
        """Whether the clock is behind where it has been; `by_ms` is by how much it jumped."""
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
    """What a gateway knows of its node when it is asked.

    `parts` are the processes besides the projects' and what they are doing; `projects` counts
    those by state. `silent_s` is how long the supervisor has said nothing, `registry` why
    this gateway cannot read the registry, "" when it can.
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
        """The board's, and what this gateway sees itself."""
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

    The status is 200 as long as anybody answers; it is 503 only where this gateway cannot
    read the registry, so that it can admit no event: a node that is restarted for each
    trouble that passes by itself would make it worse. What is wrong is named without its
    details, because anybody may ask.

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
    """Status and reasons of `/readiness`: whether events should be sent here now.

    503 while the node stops, while this gateway cannot read the registry, while the disk is
    full, and while the supervisor is silent: it could start no project.
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
    """At most `SHOWN` of them, those of the node's own parts first."""
    ordered = sorted(troubles, key=lambda t: (t.part.startswith(_PROJECT), -t.since_ms))
    return ordered[:SHOWN]
