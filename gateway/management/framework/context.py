"""The management context: the components and limits of the node that management routes use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, Protocol

from fieldbrook.actors.dry_run.runner import DryRunner
from fieldbrook.core.clock import Clock, now_ms
from fieldbrook.core.errors import ChainUnavailableError, UnavailableError
from fieldbrook.core.quotas import Quotas
from fieldbrook.core.settings import Chain, Settings
from fieldbrook.gateway.links.cluster_hosts import ClusterHosts
from fieldbrook.gateway.links.pending_event import Outcome
from fieldbrook.gateway.management.framework.temporary_files import FIRST_PART
from fieldbrook.gateway.management.sign_in.contract_wallet import (
    ContractSignatureCheck,
    no_contract,
)
from fieldbrook.gateway.management.sign_in.wallet import WalletPolicy
from fieldbrook.gateway.memory_budget import Shared, request_budget
from fieldbrook.gateway.metrics.prometheus import Collected
from fieldbrook.gateway.metrics.publisher_activity import ReadActivity, nobody_seen
from fieldbrook.gateway.metrics.series_client import NoSeries, SeriesAnswer, SeriesQuery
from fieldbrook.gateway.mqtt.inspection import RemoteInspection
from fieldbrook.observability.health import NodeHealth
from fieldbrook.security.operator_keys import Vault
from fieldbrook.storage.chain.store import ChainStoreReader
from fieldbrook.storage.lmdb.rows import Numbered
from fieldbrook.storage.project.dead_letters import (
    ANY_LETTER,
    DeadLetter,
    LetterFilter,
    LetterGroup,
    LetterRange,
    NumberedDeadLetter,
)
from fieldbrook.storage.project.history.chunks import StoredChunk
from fieldbrook.storage.project.history.flow import Flow
from fieldbrook.storage.project.history.records import EventRecord
from fieldbrook.storage.project.history.replays import Replayable, ReplayFilter
from fieldbrook.storage.project.history.search import EventFilter, EventPage, Span
from fieldbrook.storage.project.history.traces import EventTrace
from fieldbrook.storage.project.log_search import LogFilter, LogPage
from fieldbrook.storage.project.outbox import DeliveryCounts, EffectOf
from fieldbrook.storage.project.refused import Refusal
from fieldbrook.storage.project.rows import LogRow, MetricRow, NumberedRow
from fieldbrook.storage.registry.service import RegistryClient, RegistryReader
from fieldbrook.storage.sql.reading import DatabaseReader
from fieldbrook.wasm.limits import Limits


class ProjectStoreReader(Protocol):
    """Read access to a project's store."""

    def logs(self, after: int, limit: int) -> Sequence[NumberedRow]:
        """Rows of the applet log with a sequence above `after`, oldest first; -n is the last n."""

    def find_logs_after(self, wanted: LogFilter, after: int, limit: int) -> LogPage:
        """Matching rows of the applet log with a sequence above `after`, oldest first."""

    def find_logs_before(self, wanted: LogFilter, before: int, limit: int) -> LogPage:
        """Matching rows below `before`, newest first; 0 begins with the newest."""

    def metrics(self, after: int, limit: int) -> Sequence[Numbered[MetricRow]]:
        """Metrics that applets submitted, selected as in `logs`."""

    def find_events(self, wanted: EventFilter, before: int, limit: int) -> EventPage:
        """The newest matching events with places below `before`; 0 begins with the newest."""

    def event_at(self, place: int) -> tuple[EventRecord, bytes | None] | None:
        """The event at a place of the history, and its payload if that is kept."""

    def flow(self, begin_ms: int, now_ms: int) -> Flow:
        """The events that were handled from `begin_ms` on, counted by type, sender and handler."""

    def deliveries(self, begin_ms: int) -> dict[str, DeliveryCounts]:
        """Count the effects that handlers have sent, by kind."""

    def trace_at(self, place: int) -> EventTrace | None:
        """The host calls of the event at a place of the history, if they are kept."""

    def trace_count(self) -> int:
        """Return the number of events with a stored trace."""

    def events_after(self, after: int, limit: int) -> Sequence[StoredChunk]:
        """Chunks of events with a number above `after`, oldest first; -n are the last n."""

    def replayable(
        self, wanted: ReplayFilter, after: int, limit: int
    ) -> tuple[Sequence[Replayable], int]:
        """The wanted events of the history, oldest first, and how many more there are."""

    def logs_of(self, event_id: str, limit: int, spans: Sequence[Span]) -> list[LogRow]:
        """The newest log rows of an event that ran within `spans`, oldest first."""

    def effects_of(self, event_id: str, limit: int, spans: Sequence[Span]) -> list[EffectOf]:
        """The messages and calls that an event has sent, and whether they were delivered."""

    def dead_letters(
        self, before: int | None, limit: int, wanted: LetterFilter = ANY_LETTER
    ) -> tuple[Sequence[NumberedDeadLetter], int]:
        """Dead letters with numbers below `before`, newest first, and how many there are."""

    def newest_dead_letter(self) -> tuple[int, int]:
        """The number of the newest dead letter, and how many there are."""

    def dead_letter_groups(self, wanted: LetterFilter) -> list[LetterGroup]:
        """Count the dead letters of each reason, applet and handler."""

    def select_dead_letters(
        self, wanted: LetterFilter, selected: LetterRange, limit: int
    ) -> tuple[list[int], int]:
        """The numbers of the oldest matching dead letters, and the last number of the range."""

    def dead_letter(self, number: int) -> DeadLetter | None:
        """The dead letter with this number."""

    def copy(self, target: Path) -> None:
        """Copy a consistent snapshot of the store to a new folder."""

    def kv_get(self, applet_id: int, key: bytes) -> bytes | None:
        """The value an applet has stored under a key."""

    def kv_keys(
        self, applet_id: int, prefix: bytes, limit: int, after: bytes | None = None
    ) -> list[bytes]:
        """The keys of an applet that start with `prefix` and come after `after`, in byte order."""

    def kv_pairs(
        self, applet_id: int, prefix: bytes, limit: int, after: bytes | None, limit_bytes: int
    ) -> list[tuple[bytes, bytes]]:
        """The pairs of these keys, as far as they fit into `limit_bytes`; at least one."""


class ReadRefused(Protocol):
    """Reads the refused events of the whole node."""

    def __call__(
        self, limit: int, *, event_id: str | None = None, project: str | None = None
    ) -> tuple[list[Refusal], int]:
        """Refused events, newest first, and how many others there were."""


def _none_refused(
    limit: int, *, event_id: str | None = None, project: str | None = None
) -> tuple[list[Refusal], int]:
    return [], 0


class ChainCommand(Protocol):
    """Sends a command to a chain's process (`gateway.chain_client.CANCEL` and others)."""

    async def __call__(self, chain_id: int, command: str, target: int) -> None:
        """Raises: ChainUnavailableError, TransactionRefusedError."""


class SeriesReader(Protocol):
    """Reads the time series of metrics, from the process that keeps them."""

    async def read(self, query: SeriesQuery) -> SeriesAnswer:
        """Raises: UnavailableError."""


async def no_chain(chain_id: int, command: str, target: int) -> None:
    """Refuse every command, for nodes without chain processes."""
    raise ChainUnavailableError(
        chain=chain_id, reason=f"this node has no chain processes: cannot {command} {target}"
    )


def _no_database(project_id: int, _config: Mapping[str, Any]) -> DatabaseReader:
    raise UnavailableError(what=f"the SQL database of project {project_id} cannot be read here")


async def _flush_nothing(_project_id: int) -> None:
    """Do nothing, for gateways without projects."""


async def _no_trace(_project_id: int) -> None:
    """No trace, for gateways without projects."""


@dataclass(frozen=True)
class ManagementContext:
    """The components and limits of the node in the gateway that serves the routes.

    Attributes:
        vault: seals the private keys of operators.
        setup_code: reads the one-time setup code.
        store_reader: the store of a project by its id, as of its last checkpoint; None while the
            project has none. See `flushed_store`.
        command: sends a command to a project (`wire.REPLAY`, `wire.WRITE_KEY`, ...) with its
            payload and returns its outcome.
        health: the health of the node.
        refused: reads the events that the node refused.
        chains: the chains that monitors may watch.
        chain_command: sends a command to a chain's process.
        chain_reader: the store of a chain by its id; None before its process has stored anything.
        quotas: the quotas of accounts.
        running: the ids of the running projects.
        part: the name of the gateway.
        flush_project: makes a project write the rows that wait for a checkpoint (`pending_rows`).
        flush_followed: does the same for pages that follow a project, several times a second.
        trace_state: the state of a project's trace (`Tracing.state`); None without one.
        put_store: gives the store of a project that is not registered yet to all hosts of the
            cluster, in a thread that may wait; it does nothing on a node in no cluster.
        database_reader: reads a project's SQL database, given the project's configuration of it.
        dry_runner: runs handlers without effect.
        contract_wallets: asks a chain whether a contract accepts a signature.
        is_own_host: whether a host name can be this node, by the names in its certificate.
        clock: the time in Unix milliseconds.
        broker: the embedded broker, if there is one.
        mqtt: sends requests to the node's own MQTT server, if there is one.
        metrics: who may read the metrics; the value of the setting `metrics`.
        collect_metrics: collects the metrics that are computed on request.
        memory_budget: the memory budget for partially received requests.
        settings: the settings of the node.
        series: the time series of the node and its projects.
        publisher_activity: counts of the events of publishers since the node started.
    """

    reader: RegistryReader
    registry: RegistryClient
    token_key: bytes
    vault: Vault
    upload_limit_bytes: int
    token_lifetime_s: int
    modules_dir: Path
    uploads_dir: Path
    setup_code: Callable[[], str]
    version: str
    store_reader: Callable[[int], ProjectStoreReader | None]
    limits: Limits
    command: Callable[[int, str, list[Any]], Awaitable[Outcome]]
    health: Callable[[], NodeHealth] = NodeHealth
    refused: ReadRefused = _none_refused
    chains: tuple[Chain, ...] = ()
    chain_command: ChainCommand = no_chain
    chain_reader: Callable[[int], ChainStoreReader | None] = lambda _chain_id: None
    cron_jobs_limit: int = 100
    applet_versions_kept: int = 10
    quotas: Quotas = field(default_factory=Quotas)
    running: Callable[[], Set[int]] = frozenset
    part: str = FIRST_PART
    flush_project: Callable[[int], Awaitable[None]] = _flush_nothing
    flush_followed: Callable[[int], Awaitable[None]] = _flush_nothing
    trace_state: Callable[[int], Awaitable[Any]] = _no_trace
    put_store: Callable[[int], None] = lambda _project_id: None
    database_reader: Callable[[int, Mapping[str, Any]], DatabaseReader] = _no_database
    dry_runner: DryRunner | None = None
    disk_reserve_bytes: int = 0
    projects_dir: Path = Path("projects")
    project_map_bytes: int = 1 << 30
    cron_zone: tzinfo = UTC
    wallets: WalletPolicy = field(default_factory=WalletPolicy)
    contract_wallets: ContractSignatureCheck = no_contract
    is_own_host: Callable[[str], bool] = lambda _host: True
    clock: Clock = now_ms
    mqtt: RemoteInspection | None = None
    metrics: str = "off"
    collect_metrics: Callable[[], Sequence[Collected]] = tuple
    memory_budget: Shared = field(default_factory=lambda: request_budget(0))
    settings: Settings = field(default_factory=Settings)
    series: SeriesReader = field(default_factory=NoSeries)
    publisher_activity: ReadActivity = nobody_seen
    cluster: ClusterHosts = field(default_factory=lambda: ClusterHosts(None))

    async def flushed_store(self, project_id: int) -> ProjectStoreReader | None:
        """Return a project's store, after all effects of answered events were written to it.

        None while the project has no store.
        """
        await self.flush_project(project_id)
        return self.store_reader(project_id)

    async def flush_if_running(self, project_id: int) -> None:
        """Make a project that pages follow write its rows, at most several times a second."""
        if project_id in self.running():  # a project that does not run has written everything
            await self.flush_followed(project_id)
