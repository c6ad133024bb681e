"""What management needs of the node it runs in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Protocol

from fieldbrook.core.clock import Clock, now_ms
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.core.quotas import Quotas
from fieldbrook.core.settings import Chain
from fieldbrook.gateway.events.project_client import Outcome
from fieldbrook.gateway.management.framework.passing import FIRST_PART
from fieldbrook.gateway.management.sign_in.contract_wallet import IsGood, no_contract
from fieldbrook.gateway.management.sign_in.wallet import WalletPolicy
from fieldbrook.gateway.memory_budget import Room, room_for
from fieldbrook.gateway.metrics.prometheus import Measured
from fieldbrook.gateway.mqtt.broker_bounds import BrokerState
from fieldbrook.observability.health import Condition
from fieldbrook.security.operator_keys import Vault
from fieldbrook.storage.chain.store import ChainStoreReader
from fieldbrook.storage.lmdb.rows import Numbered
from fieldbrook.storage.project.dead_letters import DeadLetter, NumberedLetter
from fieldbrook.storage.project.history import EventRecord, Replayable, Wanted
from fieldbrook.storage.project.outbox import EffectOf
from fieldbrook.storage.project.refused import Refusal
from fieldbrook.storage.project.store import LogRow, MetricRow, NumberedRow
from fieldbrook.storage.registry.service import RegistryClient, RegistryReader
from fieldbrook.wasm.limits import Limits


class ProjectStoreReader(Protocol):
    """What may be seen of a project's store."""

    def logs(self, after: int, limit: int) -> Sequence[NumberedRow]:
        """Rows of the applet log with a sequence above `after`, oldest first; -n is the last n."""

    def metrics(self, after: int, limit: int) -> Sequence[Numbered[MetricRow]]:
        """What applets submitted, likewise."""

    def events(self, event_id: str | None, limit: int) -> Sequence[EventRecord]:
        """What became of the last events, the newest first: of one, or of all."""

    def replayable(
        self, wanted: Wanted, after: int, limit: int
    ) -> tuple[Sequence[Replayable], int]:
        """Events of the history that are meant, oldest first, and how many more there are."""

    def logs_of(self, event_id: str, limit: int) -> list[LogRow]:
        """The newest log rows of an event, oldest first."""

    def effects_of(self, event_id: str, limit: int) -> list[EffectOf]:
        """What an event has sent, and whether it was delivered."""

    def dead_letters(self, before: int | None, limit: int) -> tuple[Sequence[NumberedLetter], int]:
        """Dead letters, the newest first, with numbers below `before`, and how many there are."""

    def dead_letter(self, number: int) -> DeadLetter | None:
        """The dead letter with this number."""

    def copy(self, target: Path) -> None:
        """Copy the store to a new folder, as of one moment."""

    def kv_get(self, applet_id: int, key: bytes) -> bytes | None:
        """The value an applet has stored under a key."""

    def kv_keys(self, applet_id: int, prefix: bytes, limit: int) -> list[bytes]:
        """The keys of an applet that start with `prefix`, in byte order."""


class ReadRefused(Protocol):
    """How the refused events of the whole node are found."""

    def __call__(
        self, limit: int, *, event_id: str | None = None, project: str | None = None
    ) -> tuple[list[Refusal], int]:
        """The newest first, and how many others there were."""


def _none_refused(
    limit: int, *, event_id: str | None = None, project: str | None = None
) -> tuple[list[Refusal], int]:
    return [], 0


class ChainCommand(Protocol):
    """Has a chain's process obey (`chain_questions.CANCEL` and others)."""

    async def __call__(self, chain_id: int, command: str, target: int) -> None:
        """Raises: ChainUnavailableError, TransactionRefusedError."""


async def no_chain(chain_id: int, command: str, target: int) -> None:
    """There is no chain's process."""
    raise ChainUnavailableError(chain=chain_id, reason=f"nobody is there to {command} {target}")


async def _nothing_waits(_project_id: int) -> None:
    """For who runs no projects."""


@dataclass(frozen=True)
class ManagementContext:
    """The node's parts and limits, as the gateway that mounts the routes has them.

    `setup_code` reads the one-time code; `condition` says how the node is,
    `refused` which events it did not take;
    `store_reader` gives a project's store by project id, None while it has none. `chains`
    are those monitors may watch, and `chain_reader` gives what is kept of one by its id, None
    while its process has kept nothing; `contract_wallets` asks one for signatures.
    `is_own_host` says whether a host can be this node: one of its certificate's names.
    `command` has a project obey (`frames.REPLAY`,
    `frames.DISCARD`, `frames.CLEAR_LOG`) and gives its outcome. `clock`
    gives Unix milliseconds, `vault` seals the keys of operators, `room` counts the bytes of
    requests that are not whole yet. `chain_command` has a chain's process obey. `broker` is the
    embedded one, if there is one. `metrics` says who may read them, as the setting does;
    `measure` gives what no process counts. `quotas` are what accounts may have, `running` gives
    the ids of the projects that have a process. `part` is the gateway's name. `write_waiting`
    has a project write the log rows and event records that wait.
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
    command: Callable[[int, str, list[int]], Awaitable[Outcome]]
    condition: Callable[[], Condition] = Condition
    refused: ReadRefused = _none_refused
    chains: tuple[Chain, ...] = ()
    chain_command: ChainCommand = no_chain
    chain_reader: Callable[[int], ChainStoreReader | None] = lambda _chain_id: None
    cron_jobs_limit: int = 100
    applet_versions_kept: int = 10
    quotas: Quotas = field(default_factory=Quotas)
    running: Callable[[], Set[int]] = frozenset
    part: str = FIRST_PART
    write_waiting: Callable[[int], Awaitable[None]] = _nothing_waits
    disk_reserve_bytes: int = 0
    projects_dir: Path = Path("projects")
    project_map_bytes: int = 1 << 30
    cron_zone: tzinfo = UTC
    wallets: WalletPolicy = field(default_factory=WalletPolicy)
    contract_wallets: IsGood = no_contract
    is_own_host: Callable[[str], bool] = lambda _host: True
    clock: Clock = now_ms
    broker: BrokerState | None = None
    metrics: str = "off"
    measure: Callable[[], Sequence[Measured]] = tuple
    room: Room = field(default_factory=lambda: room_for(0))

    async def settled_store(self, project_id: int) -> ProjectStoreReader | None:
        """A project's store with all that was logged and recorded of events that have been
        answered; None while it has none."""
        await self.write_waiting(project_id)
        return self.store_reader(project_id)
