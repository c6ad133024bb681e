"""The metrics of the node: names, labels, help texts and columns, and how to count.

Each process counts in its row of the table in shared memory; see `metrics_table`. Counting adds
to a number in memory: nothing is sent and nothing can block. A process without a row (a tool, a
test) counts in private memory.
"""

from __future__ import annotations

import bisect
import mmap
import threading
from array import array
from collections.abc import Iterable, Sequence

import msgspec

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

ROW_BYTES = mmap.ALLOCATIONGRANULARITY
HEADER_BYTES = 64  # bytes of the part's name and the pid; the numbers follow

# The label by which the rows of one family are grouped.
WHOLE = ""  # no label: one value for the node
GATEWAY = "gateway"  # by kind of gateway: http, mqtt, scheduler, chain
CHAIN = "chain"  # by the chain's id
PART = "part"  # by process; all projects count as one
PROJECT = "project"  # by project, for projects with a row of their own
HIDDEN = "hidden"  # not exported; only for the supervisor


class Family(msgspec.Struct, frozen=True):
    """One metric and its columns in a row, beginning at `first`.

    Each value of the label has one column. A histogram has one column for each of its
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


def private_row() -> memoryview[float]:
    """Return private numbers for a process without a row in the table."""
    return memoryview(array("d", bytes(ROW_BYTES - HEADER_BYTES)))


class _Here(threading.local):
    """The row of this process, or another row that this thread writes temporarily."""

    row: memoryview[float] = private_row()

    def of_process(self, row: memoryview[float]) -> None:
        """Set the row of all threads that have no row of their own."""
        type(self).row = row


here = _Here()
"""The row to write to; the hot paths write `here.row[COLUMN] += 1`.

A thread that works for a project sets `here.row` to the row of that project."""


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


# ---------------------------------------------------------------- gateways

_LATENCIES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0)
_COMMITS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

EVENTS_RECEIVED = _add(
    "fieldbrook_events_received",
    "Events that arrived. Over MQTT, every message of a client or delivery by a broker counts.",
    COUNTER,
    GATEWAY,
)
EVENTS_ACKNOWLEDGED = _add(
    "fieldbrook_events_acknowledged",
    "Events that were handled, committed and answered, including those whose handler failed.",
    COUNTER,
    GATEWAY,
)
EVENTS_UNMATCHED = _add(
    "fieldbrook_events_unmatched",
    "Events that matched no strategy of their project.",
    COUNTER,
    GATEWAY,
)
EVENT_RETRIES = _add(
    "fieldbrook_event_retries",
    "Times that a gateway kept an event for another attempt because its project was unavailable.",
    COUNTER,
    GATEWAY,
)
EVENT_SECONDS = Histogram(
    "fieldbrook_event_duration_seconds",
    "Time from the admission of an event to the answer of its project, which follows the commit.",
    GATEWAY,
    _LATENCIES_S,
)
QUEUE_EVENTS = _add(
    "fieldbrook_queue_events", "Events that wait at a gateway for their project.", GAUGE, GATEWAY
)
QUEUE_BYTES = _add(
    "fieldbrook_queue_bytes",
    "Memory of the events that wait at a gateway for their project.",
    GAUGE,
    GATEWAY,
)
EVENTS_IN_FLIGHT = _add(
    "fieldbrook_events_in_flight",
    "Events that were sent to projects and are not answered yet.",
    GAUGE,
    GATEWAY,
)
LOOP_LAG = _add(
    "fieldbrook_event_loop_lag_seconds",
    "Delay of the last run of a gateway's one-second timer, summed over its processes. Above 0.1 "
    "the gateway is overloaded.",
    GAUGE,
    GATEWAY,
)
HTTP_CONNECTIONS = _add("fieldbrook_http_connections", "Open HTTP connections.", GAUGE, WHOLE)
HTTP_CONNECTIONS_LIMIT = _add(
    "fieldbrook_http_connections_limit",
    "Maximum of open HTTP connections. It follows from the limit on file descriptors.",
    GAUGE,
    WHOLE,
)
HTTP_CONNECTIONS_EVICTED = _add(
    "fieldbrook_http_connections_evicted",
    "Idle HTTP connections that were closed because the maximum was reached.",
    COUNTER,
    WHOLE,
)
HTTP_RESPONSES = _add_labelled(
    "fieldbrook_http_responses",
    "HTTP responses by status class: to management requests and to events in an unusual form.",
    COUNTER,
    WHOLE,
    "status",
    ("1xx", "2xx", "3xx", "4xx", "5xx"),
)
MQTT_ACKNOWLEDGED = _add(
    "fieldbrook_mqtt_acknowledged",
    "MQTT messages acknowledged to clients or to the external broker.",
    COUNTER,
    WHOLE,
)
MQTT_REPLIES = _add("fieldbrook_mqtt_replies", "Answers published for devices.", COUNTER, WHOLE)
MQTT_DROPPED = _add(
    "fieldbrook_mqtt_dropped",
    "MQTT messages of QoS 0 that were dropped because their project could not take them.",
    COUNTER,
    WHOLE,
)
MQTT_BACKLOG_PROJECTS = _add(
    "fieldbrook_mqtt_backlog_projects",
    "Projects that have messages at the MQTT gateway.",
    GAUGE,
    WHOLE,
)
MQTT_IN_FLIGHT = _add(
    "fieldbrook_mqtt_messages_in_flight",
    "MQTT messages that were sent to projects and are not answered yet.",
    GAUGE,
    WHOLE,
)
MQTT_BACKLOG = _add(
    "fieldbrook_mqtt_backlog_messages",
    "MQTT messages that wait at the gateway for their project.",
    GAUGE,
    WHOLE,
)
MQTT_BACKLOG_BYTES = _add(
    "fieldbrook_mqtt_backlog_bytes",
    "Payload bytes of the MQTT messages that wait at the gateway.",
    GAUGE,
    WHOLE,
)
MQTT_CONNECTIONS = _add("fieldbrook_mqtt_connections", "MQTT connections.", GAUGE, WHOLE)
MQTT_CONNECTS_REFUSED = _add(
    "fieldbrook_mqtt_connects_refused",
    "MQTT clients that could not connect: login, rate or number.",
    COUNTER,
    WHOLE,
)
MQTT_CONNECTIONS_EVICTED = _add(
    "fieldbrook_mqtt_connections_evicted",
    "MQTT connections without CONNECT that were closed to make room for others.",
    COUNTER,
    WHOLE,
)
MQTT_PROTOCOL_ERRORS = _add(
    "fieldbrook_mqtt_protocol_errors",
    "MQTT connections that were ended because of what the client sent.",
    COUNTER,
    WHOLE,
)
MQTT_UNDELIVERED = _add(
    "fieldbrook_mqtt_undelivered",
    "MQTT messages that were dropped for one subscriber: it does not read, its queue is full, or "
    "the message is too large for it.",
    COUNTER,
    WHOLE,
)
MQTT_SESSIONS = _add("fieldbrook_mqtt_sessions", "MQTT sessions.", GAUGE, WHOLE)
MQTT_SUBSCRIPTIONS = _add("fieldbrook_mqtt_subscriptions", "MQTT subscriptions.", GAUGE, WHOLE)
MQTT_RETAINED = _add("fieldbrook_mqtt_retained", "Retained MQTT messages.", GAUGE, WHOLE)
MQTT_STORE_BYTES = _add(
    "fieldbrook_mqtt_store_bytes",
    "Disk space of MQTT sessions, waiting and retained messages, in bytes.",
    GAUGE,
    WHOLE,
)
BROKER_CONNECTED = _add(
    "fieldbrook_broker_connected",
    "1 while the node is connected to the external MQTT broker, else 0.",
    GAUGE,
    WHOLE,
)
EFFECT_KINDS = ("mqtt", "api", "transaction")
OUTBOX_DELIVERED = _add_labelled(
    "fieldbrook_outbox_delivered",
    "Messages, API calls and transactions of handlers that were delivered.",
    COUNTER,
    WHOLE,
    "kind",
    EFFECT_KINDS,
)
OUTBOX_REFUSED = _add_labelled(
    "fieldbrook_outbox_refused",
    "Messages, API calls and transactions of handlers that were refused and are not retried.",
    COUNTER,
    WHOLE,
    "kind",
    EFFECT_KINDS,
)
OUTBOX_FAILED = _add_labelled(
    "fieldbrook_outbox_failures",
    "Failed attempts to deliver a message, an API call or a transaction of a handler. They are "
    "retried.",
    COUNTER,
    WHOLE,
    "kind",
    EFFECT_KINDS,
)

# ---------------------------------------------------------------- projects

PROJECT_EVENTS = _add(
    "fieldbrook_project_events",
    "Events that projects processed, including duplicates.",
    COUNTER,
    PROJECT,
)
DUPLICATE_EVENTS = _add(
    "fieldbrook_project_duplicate_events",
    "Events that projects answered with a stored result because they had handled them before.",
    COUNTER,
    PROJECT,
)
BATCHES = _add(
    "fieldbrook_project_batches", "Batches of events that projects committed.", COUNTER, PROJECT
)
COMMITS_FAILED = _add(
    "fieldbrook_project_commits_failed",
    "Batches of events that projects failed to commit.",
    COUNTER,
    PROJECT,
)
COMMIT_SECONDS = Histogram(
    "fieldbrook_commit_duration_seconds", "Time to commit a batch of events.", WHOLE, _COMMITS_S
)
RUN_FAILURES = _add_labelled(
    "fieldbrook_handler_failures",
    "Handler runs that failed, or could not begin, by reason: a trap, the deadline, an exceeded "
    "budget, or a missing instance, handler or module.",
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
    "Strategies of running projects whose module does not export the handler. Their events become "
    "dead letters.",
    GAUGE,
    PROJECT,
)
DEAD_LETTERS_WRITTEN = _add(
    "fieldbrook_dead_letters_written", "Dead letters that were added.", COUNTER, PROJECT
)
DEAD_LETTERS = _add(
    "fieldbrook_dead_letters", "Stored dead letters of running projects.", GAUGE, PROJECT
)
OUTBOX_PENDING = _add(
    "fieldbrook_outbox_pending",
    "Messages, API calls and transactions of handlers that wait for delivery.",
    GAUGE,
    PROJECT,
)
OUTBOX_PENDING_BYTES = _add(
    "fieldbrook_outbox_pending_bytes",
    "Size of the messages, API calls and transactions that wait for delivery.",
    GAUGE,
    PROJECT,
)
STORE_USED = _add(
    "fieldbrook_project_store_used_bytes",
    "Peak size of the store of a running project; project_map_bytes is the limit.",
    GAUGE,
    PROJECT,
)
BUSY_SECONDS = _add(
    "fieldbrook_project_busy_seconds",
    "Time that workers have spent on projects, waits for the disk and for a processor included.",
    COUNTER,
    PROJECT,
)
PROJECT_MEMORY = _add(
    "fieldbrook_project_memory_bytes",
    "Memory of the instances that a running project keeps and of its unwritten data; "
    "project_memory_bytes is the limit.",
    GAUGE,
    PROJECT,
)
HANDLER_EFFECTS = _add_labelled(
    "fieldbrook_handler_effects",
    "Messages, API calls and transactions that handlers sent and their projects committed.",
    COUNTER,
    PROJECT,
    "kind",
    EFFECT_KINDS,
)
APPLET_METRICS = _add(
    "fieldbrook_applet_metrics", "Measurements that applets submitted.", COUNTER, PROJECT
)
RUNNING_AHEAD = _add(
    "fieldbrook_project_running_ahead",
    "Events of the project that run before their turn at this moment.",
    GAUGE,
    PROJECT,
)
LOOK_AHEAD_RUNS = _add_labelled(
    "fieldbrook_look_ahead_runs",
    "Handler runs before their turn: kept; dropped, because what they had read changed; or not "
    "done in time. Those dropped or late ran again.",
    COUNTER,
    WHOLE,
    "result",
    ("kept", "dropped", "late"),
)

# ---------------------------------------------------------------- registry, chains

COMMANDS = _add(
    "fieldbrook_registry_commands", "Commands that the registry executed.", COUNTER, WHOLE
)
COMMANDS_REFUSED = _add(
    "fieldbrook_registry_commands_refused", "Commands that the registry refused.", COUNTER, WHOLE
)
CHAIN_FAILOVERS = _add(
    "fieldbrook_chain_failovers",
    "Times that requests to a chain moved to another endpoint, because one failed, lagged behind "
    "or recovered.",
    COUNTER,
    CHAIN,
)
CHAIN_LOGS_OMITTED = _add(
    "fieldbrook_chain_logs_omitted",
    "Logs that an endpoint omitted from an answer and that a second request found.",
    COUNTER,
    CHAIN,
)
CHAIN_WRONG_ANSWERS = _add(
    "fieldbrook_chain_wrong_answers",
    "Answers of endpoints that cannot be true: malformed, of another chain, or contradicted by "
    "other answers.",
    COUNTER,
    CHAIN,
)
CHAIN_ACCOUNTS_LOW = _add(
    "fieldbrook_chain_accounts_low",
    "Accounts whose funds suffice for fewer than 10 more transactions like their last one.",
    GAUGE,
    CHAIN,
)
CHAIN_NONCES_MISSING = _add(
    "fieldbrook_chain_nonces_missing",
    "Nonces that the node's transactions have used and the chain does not count, of all accounts "
    "with transactions under way.",
    GAUGE,
    CHAIN,
)
TRANSACTIONS_REPLACED = _add_labelled(
    "fieldbrook_transactions_replaced",
    "Transactions that were signed again: with higher fees, to cancel them, or with a new nonce.",
    COUNTER,
    CHAIN,
    "why",
    ("fees", "cancel", "nonce"),
)

# ---------------------------------------------------------------- several hosts

_RECORDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_REPLAYS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

APPENDS = _add_labelled(
    "fieldbrook_appends",
    "Records for the replicated streams by result. fenced: another host owns the project now. "
    "contested: another host took it over at the same time. stalled: no majority of hosts has "
    "stored it within 10 s. damaged: a record in the stream cannot be read.",
    COUNTER,
    WHOLE,
    "result",
    ("stored", "fenced", "contested", "stalled", "damaged"),
)
APPEND_SECONDS = Histogram(
    "fieldbrook_append_duration_seconds",
    "Time until a majority of hosts had stored a record.",
    WHOLE,
    _RECORDS_S,
)
APPEND_OLDEST = _add(
    "fieldbrook_append_oldest_seconds",
    "Age of the oldest record that is not stored yet, summed over the workers.",
    GAUGE,
    WHOLE,
)
TAKEOVERS = _add(
    "fieldbrook_takeovers",
    "Times that this host became the owner of a project or of the registry. Each begins a new "
    "term in the stream.",
    COUNTER,
    WHOLE,
)
REPLAY_SECONDS = Histogram(
    "fieldbrook_replay_duration_seconds",
    "Time to read the records of a project that is taken over, and its snapshot.",
    WHOLE,
    _REPLAYS_S,
)
SNAPSHOT_BYTES = _add_labelled(
    "fieldbrook_snapshot_bytes",
    "Bytes of snapshots that this host has stored in the streams, and that it has loaded.",
    COUNTER,
    WHOLE,
    "direction",
    ("stored", "loaded"),
)
TUNNELS = _add("fieldbrook_tunnels", "Open connections to sockets of other hosts.", GAUGE, WHOLE)
TUNNELS_OPENED = _add(
    "fieldbrook_tunnels_opened", "Connections to sockets of other hosts.", COUNTER, WHOLE
)
TUNNEL_BYTES = _add_labelled(
    "fieldbrook_tunnel_bytes",
    "Bytes that were sent to other hosts, and received from them, over such connections.",
    COUNTER,
    WHOLE,
    "direction",
    ("sent", "received"),
)
REGISTRY_POSITION = _add(
    "fieldbrook_registry_position",
    "Number of the last change of the cluster's registry that this host has.",
    GAUGE,
    WHOLE,
)
REGISTRY_LAG = _add(
    "fieldbrook_registry_lag",
    "Changes of the registry that another host has and this one does not.",
    GAUGE,
    WHOLE,
)
STREAMS = _add_labelled(
    "fieldbrook_streams",
    "Replicated streams of this host. held: it has a copy. led: it is the leader. at_risk: it is "
    "the leader, and one more loss stops the stream. stalled: there is no leader.",
    GAUGE,
    WHOLE,
    "state",
    ("held", "led", "at_risk", "stalled"),
)
STREAM_BYTES = _add(
    "fieldbrook_stream_bytes",
    "Disk space of the copies of streams on this host.",
    GAUGE,
    WHOLE,
)
STREAM_LIMIT_BYTES = _add(
    "fieldbrook_stream_limit_bytes", "Value of the setting cluster_file_bytes.", GAUGE, WHOLE
)

# ---------------------------------------------------------------- written by the supervisor

UP = _add(
    "fieldbrook_up",
    "Running processes of a part of the node: 0 or 1, or the number of projects or dedicated "
    "workers.",
    GAUGE,
    PART,
)
IN_TURN = _add(
    "fieldbrook_project_in_turn",
    "Whether a worker runs the project at this moment.",
    GAUGE,
    HIDDEN,
)
BUSY_BEFORE = _add(
    "fieldbrook_project_busy_seconds_before",
    "What the busy seconds of a shared row were when its project started.",
    COUNTER,
    HIDDEN,
)
RESTARTS_BEFORE = _add(
    "fieldbrook_project_restarts_before",
    "What the restarts of a shared row were when its project started.",
    COUNTER,
    HIDDEN,
)
PROCESS_STARTS = _add(
    "fieldbrook_process_starts", "Starts of processes and of projects.", COUNTER, PART
)
PROCESS_RESTARTS = _add(
    "fieldbrook_process_restarts",
    "Processes and projects that ended unexpectedly and were to be started again.",
    COUNTER,
    PART,
)
SPANS = _add_labelled(
    "fieldbrook_spans",
    "Spans of traced events by outcome. full: dropped, because too many waited. failed: dropped, "
    "because the collector did not take them.",
    COUNTER,
    WHOLE,
    "outcome",
    ("exported", "full", "failed"),
)
PROJECT_STATES = _add_labelled(
    "fieldbrook_projects",
    "Projects by state; only those that were needed since the node's start.",
    GAUGE,
    WHOLE,
    "state",
    ("up", "starting", "backoff", "retiring", "down"),
)
OUTBOX_PARKED = _add(
    "fieldbrook_outbox_parked",
    "Messages, API calls and transactions that a restored node holds back.",
    GAUGE,
    WHOLE,
)
DEAD_LETTERS_STOPPED = _add(
    "fieldbrook_dead_letters_at_rest",
    "Stored dead letters of projects that ran since the node's start and are stopped now.",
    GAUGE,
    WHOLE,
)

REFUSED_NAME = "fieldbrook_events_refused"
_REFUSED_TEXT = "Events that were refused, by the key of the error in the answer."

DEPRECATED_NAMES = {
    "fieldbrook_event_retries": "fieldbrook_events_put_off",
    "fieldbrook_event_duration_seconds": "fieldbrook_event_seconds",
    "fieldbrook_events_in_flight": "fieldbrook_unanswered_events",
    "fieldbrook_event_loop_lag_seconds": "fieldbrook_loop_late_seconds",
    "fieldbrook_http_responses": "fieldbrook_http_answers",
    "fieldbrook_mqtt_backlog_projects": "fieldbrook_mqtt_lanes",
    "fieldbrook_mqtt_messages_in_flight": "fieldbrook_mqtt_in_work",
    "fieldbrook_mqtt_backlog_messages": "fieldbrook_mqtt_backlog",
    "fieldbrook_project_duplicate_events": "fieldbrook_project_events_again",
    "fieldbrook_commit_duration_seconds": "fieldbrook_commit_seconds",
    "fieldbrook_look_ahead_runs": "fieldbrook_shard_runs",
    "fieldbrook_chain_poll_failures": "fieldbrook_chain_look_failures",
    "fieldbrook_chain_deepest_reorganisation_blocks": "fieldbrook_chain_deepest_blocks",
    "fieldbrook_chain_monitors_failing": "fieldbrook_chain_monitors_standing",
    "fieldbrook_chain_logs_omitted": "fieldbrook_chain_logs_left_out",
    "fieldbrook_transactions_replaced": "fieldbrook_transactions_signed_again",
    "fieldbrook_process_resident_memory_bytes": "fieldbrook_process_resident_bytes",
}
"""Old names of metrics by new name; for one version the metrics are also exported with their old
names."""


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
assert HEADER_BYTES + 8 * COLUMNS <= ROW_BYTES


def refused(key: str) -> None:
    """Count an event that was refused with the error of this key."""
    here.row[EVENTS_REFUSED.get(key, EVENTS_REFUSED["InternalServerError"])] += 1


def effect_kind(kind: str) -> str:
    """Return the label of an outbox entry's kind."""
    return kind if kind in EFFECT_KINDS else "transaction"
