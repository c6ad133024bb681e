"""The registry's only writer: one method per command, one synced transaction each."""

from __future__ import annotations

from pathlib import Path

from fieldbrook.core.clock import Clock
from fieldbrook.core.quotas import Quotas
from fieldbrook.storage.lmdb.environment import open_environment, store_errors, write_probe
from fieldbrook.storage.registry.audit import ROWS_LIMIT
from fieldbrook.storage.registry.commands.accounts.access_keys import AccessKeyCommands, IssuedKey
from fieldbrook.storage.registry.commands.accounts.accounts import AccountCommands
from fieldbrook.storage.registry.commands.accounts.audit import AuditCommands
from fieldbrook.storage.registry.commands.accounts.logins import LoginCommands
from fieldbrook.storage.registry.commands.accounts.operators import OperatorCommands, OperatorDraft
from fieldbrook.storage.registry.commands.accounts.wallets import WalletCommands
from fieldbrook.storage.registry.commands.projects.applets import AppletCommands, Deployed
from fieldbrook.storage.registry.commands.projects.cron_jobs import CronJobCommands
from fieldbrook.storage.registry.commands.projects.instances import InstanceCommands
from fieldbrook.storage.registry.commands.projects.monitors import MonitorCommands
from fieldbrook.storage.registry.commands.projects.projects import ProjectCommands
from fieldbrook.storage.registry.commands.projects.publishers import PublisherCommands
from fieldbrook.storage.registry.commands.projects.resources import Module, ResourceCommands
from fieldbrook.storage.registry.commands.projects.strategies import StrategyCommands
from fieldbrook.storage.registry.commands.projects.traffic_limits import TrafficLimitCommands
from fieldbrook.storage.registry.commands.projects.transfer import TransferCommands
from fieldbrook.storage.registry.reader import RegistryReader
from fieldbrook.storage.registry.replica import RegistryReplica
from fieldbrook.storage.registry.tables import RegistryTables
from fieldbrook.storage.registry.usage import StoredBytes, nothing_stored
from fieldbrook.storage.replication.connection import Connection

__all__ = ["Deployed", "IssuedKey", "Module", "OperatorDraft", "RegistryWriter"]


class RegistryWriter(
    TransferCommands,
    AccountCommands,
    LoginCommands,
    AccessKeyCommands,
    OperatorCommands,
    WalletCommands,
    ProjectCommands,
    AppletCommands,
    InstanceCommands,
    StrategyCommands,
    PublisherCommands,
    ResourceCommands,
    CronJobCommands,
    MonitorCommands,
    TrafficLimitCommands,
    AuditCommands,
):
    """All commands that change the registry. Open it in one process only, after the fork.

    Args:
        path: the registry's folder; it is created when absent.
        map_size: the size limit of the registry in bytes.
        clock: returns the current time in Unix milliseconds.
        token_key: the key that signs the tokens of publishers.
        audit_rows: the number of rows that the audit log keeps.
        quotas: the limits of accounts; none by default.
        stored: returns the disk usage of a project.
    """

    def __init__(
        self,
        path: Path,
        map_size: int,
        clock: Clock,
        token_key: bytes,
        audit_rows: int = ROWS_LIMIT,
        quotas: Quotas | None = None,
        stored: StoredBytes = nothing_stored,
    ) -> None:
        environment = open_environment(path, map_size=map_size)
        try:
            tables = RegistryTables(environment, create=True)
        except BaseException:
            environment.close()
            raise
        super().__init__(environment, tables, clock, token_key, audit_rows, quotas, stored)

    def replicate(self, connection: Connection, host: str) -> RegistryReplica:
        """Store each change in the stream of the cluster from now on.

        Args:
            connection: the connection to the replication engine of this host.
            host: the name of this host.
        """
        self.replica = RegistryReplica(self._environment, self.tables, connection, host)
        return self.replica

    def reader(self) -> RegistryReader:
        """Return a reader for this process that shares the writer's environment."""
        return RegistryReader.sharing(self._environment, self.tables)

    def probe(self, size: int) -> None:
        """Write `size` bytes and remove them, to test whether the registry is writable.

        Raises:
            StoreError: the registry is not writable.
        """
        with store_errors(self._environment.path()):
            write_probe(self._environment, size)

    def close(self) -> None:
        """Close the environment, and with it the readers that share it."""
        self._environment.close()
