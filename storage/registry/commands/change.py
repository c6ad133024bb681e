"""The base of all registry commands: `Commands` groups them, `Change` is one transaction.

A command that changes a record also increments the change counter. A command that is refused
changes nothing. A command without anything to change leaves the counter as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import lmdb
import msgspec

from fieldbrook.core.clock import Clock
from fieldbrook.core.errors import (
    AccountNotFoundError,
    AppletNotFoundError,
    ProjectNotFoundError,
    QuotaExceededError,
    ResourceNotFoundError,
    StorageFullError,
)
from fieldbrook.core.model import (
    Account,
    Applet,
    Project,
    Publisher,
    Record,
    Resource,
    Strategy,
    TrafficLimit,
)
from fieldbrook.core.quotas import Quotas, exceeded
from fieldbrook.storage.lmdb.environment import store_errors
from fieldbrook.storage.lmdb.ids import from_key, next_id, to_key
from fieldbrook.storage.lmdb.rows import table_bytes
from fieldbrook.storage.lmdb.table import OpenTable
from fieldbrook.storage.registry.audit import ROWS_LIMIT, AuditRow, append
from fieldbrook.storage.registry.reader import RegistrySnapshot
from fieldbrook.storage.registry.replica import RegistryReplica
from fieldbrook.storage.registry.tables import CHANGES_CELL, LAST_ID_CELL, RegistryTables
from fieldbrook.storage.registry.usage import StoredBytes, nothing_stored

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

R = TypeVar("R", bound=Record)
P = TypeVar("P", Applet, Publisher, Strategy, TrafficLimit)
F = TypeVar("F", bound=Callable[..., Any])

COMMANDS: set[str] = set()

# The part of the size limit that only commands that remove something, or end rights, may use. A
# removal writes, too: without a reserve, accounts could fill the registry until nothing can be
# removed.
_RESERVE_SHARE, _RESERVE_BYTES = 16, 64 << 20
_REMOVAL_BYTES = 64 << 10  # how much the tables may grow when something is removed


def command(method: F) -> F:
    """Mark a method that clients of the registry may call by its name."""
    COMMANDS.add(method.__name__)
    return method


class Commands:
    """A group of commands over one open registry.

    Every command raises `StoreError` when the store refuses the write, and then has changed
    nothing. Commands do not check ownership: the gateway has authorised the caller.
    """

    def __init__(
        self,
        environment: lmdb.Environment,
        tables: RegistryTables,
        clock: Clock,
        token_key: bytes,
        audit_rows: int = ROWS_LIMIT,
        quotas: Quotas | None = None,
        stored: StoredBytes = nothing_stored,
    ) -> None:
        self.tables = tables
        self.quotas = quotas or Quotas()
        self.stored = stored
        self.audit_rows = audit_rows
        self._audit: AuditRow | None = None
        self.token_key = token_key
        self.resources_removed = False
        """Whether the file of a module may have lost its last owner. The collector of such files
        resets it."""
        self._environment = environment
        self._databases = list(tables.databases().values())
        map_bytes = environment.info()["map_size"]
        self._limit_bytes = map_bytes - min(_RESERVE_BYTES, map_bytes // _RESERVE_SHARE)
        self._clock = clock
        self.replica: RegistryReplica | None = None
        """The replica, on a host of a cluster; it stores changes before they are committed."""

    @contextmanager
    def change(self, *, uses_reserve: bool = False) -> Iterator[Change]:
        """Open the transaction of one command; it commits if the block ends without an error.

        Args:
            uses_reserve: whether the command may write although the registry is nearly full.
        """
        replica = self.replica
        with store_errors(), self._environment.begin(write=True) as begun:
            txn = begun if replica is None else replica.record(begun)
            change = Change(self, txn, self._clock())
            change.uses_reserve = uses_reserve
            before = self._used_bytes(begun)
            yield change
            if not change.uses_reserve:
                self._require_room(before, self._used_bytes(begun), removes=change.removes)
            change.count()
            if self._audit is not None:
                append(txn, self.tables.audit, self._audit, self.audit_rows)
            if replica is not None:
                replica.store(txn)
        self.resources_removed |= change.resources_removed

    def _used_bytes(self, txn: Transaction) -> int:
        return sum(table_bytes(txn, database) for database in self._databases)

    def _require_room(self, before: int, after: int, *, removes: bool) -> None:
        """Check that a command leaves the reserve, unless it frees space.

        Raises:
            StorageFullError: the command would use the reserve.
        """
        tolerated = _REMOVAL_BYTES if removes else 0
        if after > self._limit_bytes and after - before > tolerated:
            reason = "the registry has reached its size limit: remove data, or raise the setting "
            cause = lmdb.MapFullError("the rest is kept for removals")
            raise StorageFullError(reason=f"{reason}registry_map_bytes") from cause

    @contextmanager
    def audited(self, row: AuditRow | None) -> Iterator[None]:
        """Make a change within the block write this row of the audit log in its transaction."""
        self._audit = row
        try:
            yield
        finally:
            self._audit = None


class Change:
    """The transaction of one command: its reads (`now`), its writes, and whether it wrote."""

    def __init__(self, commands: Commands, txn: Transaction, time_ms: int) -> None:
        self.txn = txn
        self.now = RegistrySnapshot(commands.tables, txn)
        self.tables = commands.tables
        self.token_key = commands.token_key
        self.time_ms = time_ms
        self._quotas, self._stored = commands.quotas, commands.stored
        self.resources_removed = False
        self.uses_reserve = self.removes = False
        self._changed = False

    def new_id(self) -> int:
        """Return a new id and store it as the last assigned id."""
        last = from_key(self.txn.get(LAST_ID_CELL, b"", db=self.tables.meta))
        given = next_id(last, self.time_ms)
        self.txn.put(LAST_ID_CELL, to_key(given), db=self.tables.meta)
        return given

    def add(self, table: OpenTable[R], record: R) -> R:
        """Store a new record with the time of this change; return it with its times."""
        times = {"created_at": self.time_ms, "updated_at": self.time_ms}
        return self.put(table, msgspec.structs.replace(record, **times))

    def put(self, table: OpenTable[R], record: R) -> R:
        table.put(self.txn, record)
        self._changed = True
        return record

    def update(self, table: OpenTable[R], record: R, **fields: Any) -> R:
        """Store `record` with other fields, unless they are equal; return the result."""
        if msgspec.structs.replace(record, **fields) == record:
            return record
        return self.touch(table, record, **fields)

    def touch(self, table: OpenTable[R], record: R, **fields: Any) -> R:
        """Store `record` with other fields and a later `updated_at`, even if they are equal."""
        later = max(self.time_ms, record.updated_at + 1)
        return self.put(table, msgspec.structs.replace(record, updated_at=later, **fields))

    def remove(self, table: OpenTable[R], record: R) -> None:
        table.remove(self.txn, record)
        self._changed = self.removes = True

    def mark_changed(self) -> None:
        """Count a write of something other than a record."""
        self._changed = True

    def count(self) -> None:
        """Increment the change counter if a record was changed."""
        if self._changed:
            version = self.now.version() + 1
            self.txn.put(CHANGES_CELL, to_key(version), db=self.tables.meta)

    def require_quota(self, account_id: int, name: str, adding: int = 1) -> None:
        """Check that an account's quota allows `adding` more. Call it before adding them.

        An account that exceeded a limit when the limit was set keeps its objects. Commands run one
        after the other in transactions, so two concurrent commands cannot both use the last place.

        Raises:
            QuotaExceededError: the account would exceed its quota.
        """
        account = self.now.account(account_id)
        limit = self._quotas.limit(account, name) if account is not None and adding > 0 else None
        if account is None or limit is None:
            return
        used = self.now.usage(account_id, name, self._stored)
        if used + adding > limit:
            raise exceeded(account, name, limit, used, adding)

    def is_within_quota(self, account_id: int, name: str) -> bool:
        """Whether an account's quota allows one more."""
        try:
            self.require_quota(account_id, name)
        except QuotaExceededError:
            return False
        return True

    def account(self, account_id: int) -> Account:
        """Return an account, or raise `AccountNotFoundError`."""
        account = self.now.account(account_id)
        if account is None:
            raise AccountNotFoundError(account=account_id)
        return account

    def project(self, project_id: int) -> Project:
        """Return a project, or raise `ProjectNotFoundError`."""
        project = self.now.project(project_id)
        if project is None:
            raise ProjectNotFoundError(project=project_id)
        return project

    def applet(self, applet_id: int) -> Applet:
        """Return an applet, or raise `AppletNotFoundError`."""
        applet = self.now.applet(applet_id)
        if applet is None:
            raise AppletNotFoundError(applet=applet_id)
        return applet

    def applet_in(self, project_id: int, applet_id: int) -> Applet:
        """Return an applet of this project, or raise `AppletNotFoundError`."""
        applet = self.applet(applet_id)
        if applet.project_id != project_id:
            raise AppletNotFoundError(applet=applet_id)
        return applet

    def resource(self, resource_id: int) -> Resource:
        """Return a resource, or raise `ResourceNotFoundError`."""
        resource = self.now.resource(resource_id)
        if resource is None:
            raise ResourceNotFoundError(resource=resource_id)
        return resource

    def in_project(self, table: OpenTable[P], project_id: int, ids: Iterable[int]) -> list[P]:
        """Return the records with these ids that belong to a project, each once."""
        found = (table.get(self.txn, identifier) for identifier in dict.fromkeys(ids))
        return [record for record in found if record and record.project_id == project_id]

    def is_resource_used(self, resource_id: int) -> bool:
        """Whether an applet runs a resource or keeps a version of it for a roll-back."""
        key = to_key(resource_id)
        return self.tables.applets.holds(
            self.txn, "resource_applets", key
        ) or self.tables.applet_versions.holds(self.txn, "resource_versions", key)

    def remove_resource(self, resource: Resource) -> None:
        """Remove a resource; its module's file is collected once no account owns it."""
        self.remove(self.tables.resources, resource)
        self.resources_removed = True

    def remove_unused_resources(self, *resource_ids: int) -> None:
        """Remove those resources that their owner has deleted and no applet uses any more."""
        for resource_id in set(resource_ids):
            resource = self.now.resource(resource_id)
            if resource is not None and resource.deleted and not self.is_resource_used(resource_id):
                self.remove_resource(resource)
