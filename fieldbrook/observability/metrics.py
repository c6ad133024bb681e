"""Metrics of the node: a table in anonymous shared memory, one row per process.

The supervisor creates the table before it forks. Each process that it starts writes one row,
and the gateway that serves the metrics reads all rows. Counting adds to a number in memory:
nothing is sent, nothing can block, and the counts of a killed process survive it. The successor
of a process gets its row, so the counters of a part only grow while the node runs. The gauges
of a process that has ended are cleared. No file is behind the memory: a full disk does not
affect it, and the table ends with the node.

A process without a row (a tool, a test) counts in private memory.
"""

from __future__ import annotations

import bisect
import mmap
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

ROWS = 4_096  # virtual memory only: a page is allocated at the first write to its row
ROW_BYTES = mmap.ALLOCATIONGRANULARITY
_HEADER = 64  # bytes of the part's name and the pid; the numbers follow
_PID = 56
_NAME_BYTES = 48

# The label by which the rows of one family are grouped.
WHOLE = ""  # no label: one value for the node
GATEWAY = "gateway"  # by kind of gateway: http, mqtt, scheduler, chain
CHAIN = "chain"  # by the chain's id
PART = "part"  # by process; all projects count as one
PROJECT = "project"  # by project, for projects with a row of their own


@dataclass(frozen=True, slots=True)
class Family:
    """One metric and its columns in a row, beginning at `first`.

    Each of `values` of the `label` has one column. A histogram has one column for each of its
    bounds, one for larger values, and one for the sum.
    """

    name: str
    text: str
    kind: str
    by: str
    first: int
    label: str = ""
    values: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def columns(self) -> int:
        """The number of columns."""
        if self.kind == HISTOGRAM:
            return len(self.bounds) + 2
        return len(self.values) or 1


FAMILIES: list[Family] = []


def _next_column() -> int:
    return FAMILIES[-1].first + FAMILIES[-1].columns if FAMILIES else 0


def _add(name: str, text: str, kind: str, by: str) -> int:
    family = Family(name, text, kind, by, _next_column())
    FAMILIES.append(family)
    return family.first


def _add_labelled(
    name: str, text: str, kind: str, by: str, label: str, values: Iterable[str]
) -> dict[str, int]:
    family = Family(name, text, kind, by, _next_column(), label, tuple(values))
    FAMILIES.append(family)
    return {value: family.first + at for at, value in enumerate(family.values)}


class _Here:
    """This process's row."""

    __slots__ = ("row",)

    def __init__(self) -> None:
        self.row: memoryview[float] = memoryview(array("d", bytes(ROW_BYTES - _HEADER)))


here = _Here()
"""The row of this process; the hot paths write `here.row[COLUMN] += 1`."""


def add(column: int, number: float = 1.0) -> None:
    """Add to a counter of this process."""
    here.row[column] += number


def put(column: int, number: float) -> None:
    """Set a gauge of this process."""
    here.row[column] = number


class Histogram:
    """A histogram of durations in seconds."""

    __slots__ = ("_bounds", "_first", "_sum")

    def __init__(self, name: str, text: str, by: str, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._first = _next_column()
        self._sum = self._first + len(self._bounds) + 1
        FAMILIES.append(Family(name, text, HISTOGRAM, by, self._first, bounds=self._bounds))

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        row = here.row
        row[self._first + bisect.bisect_left(self._bounds, seconds)] += 1
        row[self._sum] += seconds

    def observe_all(self, many: Sequence[float]) -> None:
        """Count several durations."""
        row, first, bounds, find = here.row, self._first, self._bounds, bisect.bisect_left
        for seconds in many:
            row[first + find(bounds, seconds)] += 1
        row[self._sum] += sum(many)


# ---------------------------------------------------------------- what is counted: gateways

_LATENCIES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0)
_COMMITS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

EVENTS_RECEIVED = _add(
    "fieldbrook_events_received",
    "Events that arrived; over MQTT each time the broker delivers one.",
    COUNTER,
    GATEWAY,
)
EVENTS_ACKNOWLEDGED = _add(
    "fieldbrook_events_acknowledged",
    "Events that were handled, committed and answered; a failed handler's too.",
    COUNTER,
    GATEWAY,
)
EVENTS_UNMATCHED = _add(
    "fieldbrook_events_unmatched",
    "Events that no strategy of their project matched.",
    COUNTER,
    GATEWAY,
)
EVENTS_PUT_OFF = _add(
    "fieldbrook_events_put_off",
    "Times that an event was kept to be tried again, because its project could not take it.",
    COUNTER,
    GATEWAY,
)
EVENT_SECONDS = Histogram(
    "fieldbrook_event_seconds",
    "From an event's admission to its project's answer, which comes after the commit.",
    GATEWAY,
    _LATENCIES_S,
)
QUEUE_EVENTS = _add(
    "fieldbrook_queue_events", "Events that wait at a gateway for their projects.", GAUGE, GATEWAY
)
QUEUE_BYTES = _add("fieldbrook_queue_bytes", "Memory that those take.", GAUGE, GATEWAY)
UNANSWERED = _add(
    "fieldbrook_unanswered_events",
    "Events that projects have and have not answered.",
    GAUGE,
    GATEWAY,
)
LOOP_LATE = _add(
    "fieldbrook_loop_late_seconds",
    "How late a gateway's timer of a second ran last, added up over its processes: above 0.1 it "
    "has too much to do.",
    GAUGE,
    GATEWAY,
)
HTTP_CONNECTIONS = _add("fieldbrook_http_connections", "Open connections.", GAUGE, WHOLE)
HTTP_CONNECTIONS_LIMIT = _add(
    "fieldbrook_http_connections_limit",
    "Connections that the HTTP gateways may have open; file descriptors limit them.",
    GAUGE,
    WHOLE,
)
HTTP_CONNECTIONS_EVICTED = _add(
    "fieldbrook_http_connections_evicted",
    "Quiet connections that were closed because there were too many.",
    COUNTER,
    WHOLE,
)
HTTP_ANSWERS = _add_labelled(
    "fieldbrook_http_answers",
    "Answers to requests of management and others that are no plain event, by status class.",
    COUNTER,
    WHOLE,
    "status",
    ("1xx", "2xx", "3xx", "4xx", "5xx"),
)
MQTT_ACKNOWLEDGED = _add(
    "fieldbrook_mqtt_acknowledged", "Messages that the broker was told are done.", COUNTER, WHOLE
)
MQTT_REPLIES = _add(
    "fieldbrook_mqtt_replies", "Answers published for devices, QoS 0.", COUNTER, WHOLE
)
MQTT_RETURNED = _add(
    "fieldbrook_mqtt_returned",
    "Messages given back to the broker because their lane was full.",
    COUNTER,
    WHOLE,
)
MQTT_DROPPED = _add(
    "fieldbrook_mqtt_dropped",
    "Messages of QoS 0 that were given up because their lane was full.",
    COUNTER,
    WHOLE,
)
MQTT_LANES = _add(
    "fieldbrook_mqtt_lanes", "Projects with messages at the MQTT gateway.", GAUGE, WHOLE
)
MQTT_IN_WORK = _add("fieldbrook_mqtt_in_work", "Messages at the projects.", GAUGE, WHOLE)
MQTT_BACKLOG = _add("fieldbrook_mqtt_backlog", "Messages that wait in lanes.", GAUGE, WHOLE)
MQTT_BACKLOG_BYTES = _add("fieldbrook_mqtt_backlog_bytes", "Their payloads.", GAUGE, WHOLE)
BROKER_CONNECTED = _add(
    "fieldbrook_broker_connected", "1 while there is a connection to the broker.", GAUGE, WHOLE
)
_KEPT_KINDS = ("retained", "qos2", "sessions")
BROKER_KEPT = _add_labelled(
    "fieldbrook_broker_kept",
    "What the embedded broker keeps for devices: retained messages, unreleased QoS 2 messages, "
    "sessions.",
    GAUGE,
    WHOLE,
    "kind",
    _KEPT_KINDS,
)
BROKER_KEPT_LIMIT = _add_labelled(
    "fieldbrook_broker_kept_limit",
    "How many of these it keeps at most.",
    GAUGE,
    WHOLE,
    "kind",
    _KEPT_KINDS,
)
EFFECT_KINDS = ("mqtt", "api", "transaction")
OUTBOX_DELIVERED = _add_labelled(
    "fieldbrook_outbox_delivered",
    "What handlers sent and was delivered.",
    COUNTER,
    WHOLE,
    "kind",
    EFFECT_KINDS,
)
OUTBOX_REFUSED = _add_labelled(
    "fieldbrook_outbox_refused",
    "What handlers sent and nobody takes.",
    COUNTER,
    WHOLE,
    "kind",
    EFFECT_KINDS,
)
OUTBOX_FAILED = _add_labelled(
    "fieldbrook_outbox_failures",
    "Attempts to deliver that failed and are made again.",
    COUNTER,
    WHOLE,
    "kind",
    EFFECT_KINDS,
)

# ---------------------------------------------------------------- projects

PROJECT_EVENTS = _add(
    "fieldbrook_project_events",
    "Events that projects went through, those they had handled before included.",
    COUNTER,
    PROJECT,
)
PROJECT_AGAIN = _add(
    "fieldbrook_project_events_again", "Of these, those they had handled before.", COUNTER, PROJECT
)
BATCHES = _add("fieldbrook_project_batches", "Batches that were committed.", COUNTER, PROJECT)
COMMITS_FAILED = _add(
    "fieldbrook_project_commits_failed", "Batches that could not be.", COUNTER, PROJECT
)
COMMIT_SECONDS = Histogram(
    "fieldbrook_commit_seconds", "How long a batch's commit takes.", WHOLE, _COMMITS_S
)
RUN_FAILURES = _add_labelled(
    "fieldbrook_handler_failures",
    "Handler runs that failed: a trap, the deadline or a budget that ended them, or why there "
    "was none.",
    COUNTER,
    PROJECT,
    "reason",
    (
        *("deadline", "trap", "host_calls", "log", "key_value", "data", "effects"),
        *("not_running", "not_exported", "module", "process_died", "other"),
    ),
)
DEAD_STRATEGIES = _add(
    "fieldbrook_dead_strategies",
    "Strategies of running projects whose handler the module does not export: their events "
    "become dead letters.",
    GAUGE,
    PROJECT,
)
LETTERS_WRITTEN = _add(
    "fieldbrook_dead_letters_written", "Dead letters that were written.", COUNTER, PROJECT
)
LETTERS = _add(
    "fieldbrook_dead_letters",
    "Dead letters that are kept, of projects that have run since the node's start.",
    GAUGE,
    PROJECT,
)
OUTBOX_ENTRIES = _add(
    "fieldbrook_outbox_pending", "What handlers sent and waits to be delivered.", GAUGE, PROJECT
)
OUTBOX_BYTES = _add("fieldbrook_outbox_pending_bytes", "Its size.", GAUGE, PROJECT)
STORE_USED = _add(
    "fieldbrook_project_store_used_bytes",
    "Of project_map_bytes, the most that the running project's store has used.",
    GAUGE,
    PROJECT,
)
SENT = _add_labelled(
    "fieldbrook_handler_effects",
    "What committed handlers have sent.",
    COUNTER,
    PROJECT,
    "kind",
    EFFECT_KINDS,
)
MEASURED = _add(
    "fieldbrook_applet_metrics", "Measurements that applets have submitted.", COUNTER, PROJECT
)
SHARDS = _add("fieldbrook_shards", "Processes that run handlers ahead.", GAUGE, WHOLE)
SHARDS_LOST = _add("fieldbrook_shards_lost", "Of those, those that died or hung.", COUNTER, WHOLE)
AHEAD = _add_labelled(
    "fieldbrook_shard_runs",
    "Runs that shards made ahead, and whether they counted.",
    COUNTER,
    WHOLE,
    "result",
    ("kept", "dropped"),
)

# ---------------------------------------------------------------- registry, chains

COMMANDS = _add(
    "fieldbrook_registry_commands", "Commands that the registry carried out.", COUNTER, WHOLE
)
COMMANDS_REFUSED = _add(
    "fieldbrook_registry_commands_refused", "Commands that it refused.", COUNTER, WHOLE
)
CHAIN_FAILOVERS = _add(
    "fieldbrook_chain_failovers",
    "Times that another endpoint than before answered for a chain, because one failed, lay behind, "
    "or was there again.",
    COUNTER,
    CHAIN,
)
CHAIN_LOGS_LEFT_OUT = _add(
    "fieldbrook_chain_logs_left_out",
    "Logs that an endpoint left out of an answer, and that were found by asking again.",
    COUNTER,
    CHAIN,
)
SIGNED_AGAIN = _add_labelled(
    "fieldbrook_transactions_signed_again",
    "Transactions that were signed another time: to pay higher fees, to be cancelled, or with "
    "another nonce.",
    COUNTER,
    CHAIN,
    "why",
    ("fees", "cancel", "nonce"),
)

# ---------------------------------------------------------------- written by the supervisor

UP = _add(
    "fieldbrook_up", "Processes that serve: 1 or 0 for a fixed part, any for projects.", GAUGE, PART
)
STARTS = _add("fieldbrook_process_starts", "Times that a process was started.", COUNTER, PART)
DEATHS = _add(
    "fieldbrook_process_restarts", "Times that one died and was to be started again.", COUNTER, PART
)
PROJECT_STATES = _add_labelled(
    "fieldbrook_projects",
    "Projects whose process was wanted since the node's start, by its state.",
    GAUGE,
    WHOLE,
    "state",
    ("up", "starting", "backoff", "retiring", "down"),
)
OUTBOX_PARKED = _add(
    "fieldbrook_outbox_parked", "Of what waits, what a restored node holds back.", GAUGE, WHOLE
)
LETTERS_AT_REST = _add(
    "fieldbrook_dead_letters_at_rest", "Dead letters of projects without a process.", GAUGE, WHOLE
)

REFUSED_NAME = "fieldbrook_events_refused"
_REFUSED_TEXT = "Events that were refused, by the key of the error they were answered."


def _refusal_columns() -> dict[str, int]:
    from fieldbrook.core import errors

    def below(kind: type[errors.NodeError]) -> Iterable[type[errors.NodeError]]:
        yield kind
        for sub in kind.__subclasses__():
            yield from below(sub)

    keys = sorted({kind.key for kind in below(errors.NodeError)})
    return _add_labelled(REFUSED_NAME, _REFUSED_TEXT, COUNTER, GATEWAY, "reason", keys)


EVENTS_REFUSED = _refusal_columns()
COLUMNS = _next_column()
_GAUGES = [f.first + at for f in FAMILIES if f.kind == GAUGE for at in range(f.columns)]
assert _HEADER + 8 * COLUMNS <= ROW_BYTES


def refused(key: str) -> None:
    """Count an event that was refused with the error of this key."""
    here.row[EVENTS_REFUSED.get(key, EVENTS_REFUSED["InternalServerError"])] += 1


def effect_kind(kind: str) -> str:
    """The label of an outbox entry's kind."""
    return kind if kind in EFFECT_KINDS else "transaction"


# ---------------------------------------------------------------- the table


class Row(NamedTuple):
    """A snapshot of a row: its part, the pid of its writer (0: none), and its numbers."""

    part: str
    pid: int
    numbers: Sequence[float]


class Table:
    """The shared memory, created once by the process that forks the others."""

    def __init__(self, rows: int = ROWS) -> None:
        self.rows = rows
        self._memory = mmap.mmap(-1, rows * ROW_BYTES)
        self._view = memoryview(self._memory)

    def row(self, slot: int) -> memoryview[float]:
        """The numbers of a row."""
        start = slot * ROW_BYTES
        return self._view[start + _HEADER : start + ROW_BYTES].cast("d")

    def attach(self, slot: int) -> None:
        """Make this process the writer of a row."""
        self.clear_gauges(slot)
        self._set_pid(slot, os.getpid())
        here.row = self.row(slot)

    def name(self, slot: int, part: str) -> None:
        """Set the part that a row belongs to."""
        start = slot * ROW_BYTES
        self._view[start : start + _NAME_BYTES] = part.encode()[:_NAME_BYTES].ljust(
            _NAME_BYTES, b"\0"
        )

    def detach(self, slot: int) -> None:
        """Mark the writer of a row as ended: the counters stay, the gauges are cleared."""
        self._set_pid(slot, 0)
        self.clear_gauges(slot)

    def clear_gauges(self, slot: int) -> None:
        """Set the gauges of a row to 0."""
        row = self.row(slot)
        for column in _GAUGES:
            row[column] = 0.0

    def _set_pid(self, slot: int, pid: int) -> None:
        start = slot * ROW_BYTES + _PID
        self._view[start : start + 8] = pid.to_bytes(8, "little")

    def read(self) -> list[Row]:
        """All rows that were ever assigned to a part."""
        found = []
        for slot in range(self.rows):
            start = slot * ROW_BYTES
            name = bytes(self._view[start : start + _NAME_BYTES]).rstrip(b"\0")
            if not name:
                break  # rows are assigned in order
            pid = int.from_bytes(self._view[start + _PID : start + _HEADER], "little")
            part = name.decode("utf-8", "replace")
            found.append(Row(part, pid, self.row(slot)[:COLUMNS].tolist()))
        return found


class _Shared:
    """Holds the table of the node in every process that was forked after its creation."""

    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table: Table | None = None


shared = _Shared()


def attach(slot: int) -> None:
    """Write to this row of the shared table, or to private memory when there is no such row."""
    if shared.table is not None and 0 <= slot < shared.table.rows:
        shared.table.attach(slot)
    else:
        here.row = _Here().row


PROJECTS = "projects"  # the part name of the rows that projects share
NO_ROW = -1


@dataclass
class Slots:
    """Assigns rows to parts.

    A fixed part keeps its row. The first `named` projects also get rows of their own and keep
    them. All other projects borrow any row that no project uses at the time.
    """

    rows: int = ROWS
    named: int = 0
    _of_part: dict[str, int] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    _used: int = 0
    _projects_named: int = 0

    def take(self, part: str) -> tuple[int, str]:
        """The row for a part, `NO_ROW` when none is left, and the part name of that row."""
        slot = self._of_part.get(part)
        if slot is not None:
            return slot, part
        if not part.startswith("project:"):
            return self._keep(part)
        if self._projects_named < self.named:
            self._projects_named += 1
            return self._keep(part)
        return (self._free.pop() if self._free else self._new()), PROJECTS

    def give_back(self, part: str, slot: int) -> None:
        """Release the row of a process that has ended."""
        if slot != NO_ROW and part not in self._of_part:
            self._free.append(slot)

    def _keep(self, part: str) -> tuple[int, str]:
        slot = self._new()
        if slot != NO_ROW:
            self._of_part[part] = slot
        return slot, part

    def _new(self) -> int:
        if self._used >= self.rows:
            return NO_ROW
        self._used += 1
        return self._used - 1
