"""Reads of the registry, from any process and concurrent with its writer.

Each read sees a snapshot of its own. Reads within `snapshot()` share one.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import lmdb

from fieldbrook.core.model import (
    ADMIN,
    ENABLED,
    PROJECT_CHAINS,
    PROJECT_ENV,
    PROJECT_SPENDING,
    REMOVED,
    AccessKey,
    Account,
    Applet,
    AppletVersion,
    Config,
    ContractAbi,
    CronJob,
    Monitor,
    Operator,
    Project,
    ProjectOperator,
    Publisher,
    Record,
    Resource,
    Strategy,
    TrafficLimit,
)
from fieldbrook.security.operator_keys import DEFAULT_OPERATOR
from fieldbrook.security.tokens import Login
from fieldbrook.storage.lmdb.environment import (
    open_environment,
    store_error,
    store_errors,
    used_bytes,
)
from fieldbrook.storage.lmdb.ids import LIMIT, from_key, to_key
from fieldbrook.storage.lmdb.table import OpenTable, text_key
from fieldbrook.storage.registry.audit import AuditPage, AuditRow, page
from fieldbrook.storage.registry.configurations import (
    environment_of,
    retries_chains,
    wei_per_day,
)
from fieldbrook.storage.registry.lease import Lease, NoLease
from fieldbrook.storage.registry.tables import CHANGES_CELL, RegistryTables, login_key
from fieldbrook.storage.registry.usage import StoredBytes, nothing_stored, quota_usage

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

R = TypeVar("R", bound=Record)

_COUNTED = (
    *("accounts", "projects", "applets", "strategies", "publishers", "cron_jobs", "monitors"),
    *("operators", "access_keys", "resources"),
)


class RegistryQueries(abc.ABC):
    """The queries of the registry. Each runs in the transaction that `_reading` returns.

    Every method raises `StoreError` when the store cannot be read.
    """

    _tables: RegistryTables

    @abc.abstractmethod
    def _reading(self) -> AbstractContextManager[Transaction]: ...

    def _get(self, table: OpenTable[R], identifier: int) -> R | None:
        with self._reading() as txn:
            return table.get(txn, identifier)

    def _find(self, table: OpenTable[R], index: str, key: bytes) -> R | None:
        with self._reading() as txn:
            return table.find(txn, index, key)

    def _find_text(self, table: OpenTable[R], index: str, owner_id: int, text: str) -> R | None:
        return self._find(table, index, to_key(owner_id) + text_key(text))

    def _all(self, table: OpenTable[R], limit: int | None = None) -> list[R]:
        with self._reading() as txn:
            return list(islice(table.all(txn), limit))

    def _scan(
        self, table: OpenTable[R], index: str, prefix: bytes, limit: int | None = None
    ) -> list[R]:
        with self._reading() as txn:
            return list(islice(table.scan(txn, index, prefix), limit))

    def account(self, account_id: int) -> Account | None:
        """The account with this id."""
        return self._get(self._tables.accounts, account_id)

    def has_ended(self, login: Login) -> bool:
        """Whether a login was ended before its tokens expired."""
        with self._reading() as txn:
            key = login_key(login.login_id, login.began_s)
            return txn.get(key, db=self._tables.ended_logins) is not None

    def accounts(self) -> list[Account]:
        """All accounts in creation order."""
        return self._all(self._tables.accounts)

    def administrators(self) -> list[Account]:
        """The accounts with the role ADMIN that are not disabled."""
        found = self._scan(self._tables.accounts, "account_roles", text_key(ADMIN) + b"\0")
        return [account for account in found if account.state == ENABLED]

    def account_named(self, username: str) -> Account | None:
        """The account with exactly this username."""
        return self._find(self._tables.accounts, "account_names", text_key(username))

    def has_administrator(self) -> bool:
        """Whether any account has the role ADMIN."""
        with self._reading() as txn:
            return self._tables.accounts.holds(txn, "account_roles", text_key(ADMIN) + b"\0")

    def has_wallet(self) -> bool:
        """Whether any account belongs to a wallet; its username is the address of the wallet."""
        with self._reading() as txn:
            return self._tables.accounts.holds(txn, "account_names", text_key("0x"))

    def project(self, project_id: int) -> Project | None:
        """The project with this id."""
        return self._get(self._tables.projects, project_id)

    def project_named(self, name: str) -> Project | None:
        """The project with exactly this name; names are unique in the node."""
        return self._find(self._tables.projects, "project_names", text_key(name))

    def projects(self, account_id: int | None = None, limit: int | None = None) -> list[Project]:
        """All projects, or those of one account, in creation order, `limit` at most."""
        if account_id is None:
            return self._all(self._tables.projects, limit)
        return self._scan(self._tables.projects, "account_projects", to_key(account_id), limit)

    def config(self, project_id: int, kind: str) -> Config | None:
        """A project's configuration of a kind."""
        return self._find_text(self._tables.configs, "project_configs", project_id, kind)

    def configs(self, project_id: int) -> list[Config]:
        """The configurations of a project."""
        return self._scan(self._tables.configs, "project_configs", to_key(project_id))

    def environment(self, project_id: int) -> dict[str, str]:
        """The variables of a project's PROJECT_ENV; empty when the project has none."""
        return environment_of(self.config(project_id, PROJECT_ENV))

    def retries_chains(self, project_id: int) -> bool:
        """Whether events are answered 503 while a chain is unavailable (PROJECT_CHAINS)."""
        return retries_chains(self.config(project_id, PROJECT_CHAINS))

    def spending_limit(self, project_id: int) -> int | None:
        """The daily limit in wei of a project's PROJECT_SPENDING; None when it has none."""
        return wei_per_day(self.config(project_id, PROJECT_SPENDING))

    def publisher(self, project_id: int, pub_id: str) -> Publisher | None:
        """The publisher of a project whose key, or else whose decimal id, is `pub_id`."""
        found = self.publisher_with_key(project_id, pub_id)
        if found is not None or not (identifier := _as_id(pub_id)):
            return found
        return self.publisher_with_id(project_id, identifier)

    def publisher_with_key(self, project_id: int, key: str) -> Publisher | None:
        """The publisher of a project with exactly this key."""
        return self._find_text(self._tables.publishers, "publisher_keys", project_id, key)

    def publisher_with_id(self, project_id: int, publisher_id: int) -> Publisher | None:
        """The publisher of a project with this id."""
        found = self.publisher_anywhere(publisher_id)
        return found if found and found.project_id == project_id else None

    def publisher_anywhere(self, publisher_id: int) -> Publisher | None:
        """The publisher with this id, of any project."""
        return self._get(self._tables.publishers, publisher_id)

    def publisher_with_token(self, token: str) -> Publisher | None:
        """The publisher that has this current token."""
        return self._find(self._tables.publishers, "publisher_tokens", text_key(token))

    def publishers(self, project_id: int, limit: int | None = None) -> list[Publisher]:
        """The publishers of a project in creation order, `limit` at most."""
        return self._scan(self._tables.publishers, "project_publishers", to_key(project_id), limit)

    def applet(self, applet_id: int) -> Applet | None:
        """The applet with this id."""
        return self._get(self._tables.applets, applet_id)

    def applet_of_instance(self, instance_id: int) -> Applet | None:
        """The applet of the instance with this id; None when the instance was removed."""
        if not 0 <= instance_id < LIMIT:
            return None
        applet = self._find(self._tables.applets, "instances", to_key(instance_id))
        return None if applet is None or applet.state == REMOVED else applet

    def applets(self, project_id: int, limit: int | None = None) -> list[Applet]:
        """The applets of a project in creation order, `limit` at most."""
        return self._scan(self._tables.applets, "project_applets", to_key(project_id), limit)

    def applet_versions(self, applet_id: int) -> list[AppletVersion]:
        """The versions of an applet that are kept, oldest first."""
        return self._scan(self._tables.applet_versions, "version_numbers", to_key(applet_id))

    def applet_version(self, applet_id: int, number: int) -> AppletVersion | None:
        """The version of an applet with this number, if it is kept."""
        if not 0 <= number < LIMIT:
            return None
        key = to_key(applet_id) + to_key(number)
        return self._find(self._tables.applet_versions, "version_numbers", key)

    def strategy(self, strategy_id: int) -> Strategy | None:
        """The strategy with this id."""
        return self._get(self._tables.strategies, strategy_id)

    def strategies(self, project_id: int) -> list[Strategy]:
        """The strategies of a project in creation order."""
        return self._scan(self._tables.strategies, "project_strategies", to_key(project_id))

    def strategies_of_applet(self, applet_id: int) -> list[Strategy]:
        """The strategies of an applet in creation order."""
        return self._scan(self._tables.strategies, "applet_strategies", to_key(applet_id))

    def cron_job(self, cron_job_id: int) -> CronJob | None:
        """The cron job with this id."""
        return self._get(self._tables.cron_jobs, cron_job_id)

    def cron_jobs(self, project_id: int | None = None) -> list[CronJob]:
        """All cron jobs, or those of one project, in creation order."""
        if project_id is None:
            return self._all(self._tables.cron_jobs)
        return self._scan(self._tables.cron_jobs, "project_cron_jobs", to_key(project_id))

    def monitor(self, monitor_id: int) -> Monitor | None:
        """The monitor with this id."""
        return self._get(self._tables.monitors, monitor_id)

    def monitors(self, project_id: int, limit: int | None = None) -> list[Monitor]:
        """The monitors of a project in creation order, `limit` at most."""
        return self._scan(self._tables.monitors, "project_monitors", to_key(project_id), limit)

    def monitors_of_chain(self, chain_id: int) -> list[Monitor]:
        """The monitors of a chain in creation order, of all projects."""
        return self._scan(self._tables.monitors, "chain_monitors", to_key(chain_id))

    def contract_abi(self, project_id: int, name: str) -> ContractAbi | None:
        """The ABI that a project keeps under a name."""
        return self._find_text(self._tables.contract_abis, "contract_abi_names", project_id, name)

    def contract_abis(self, project_id: int) -> list[ContractAbi]:
        """The ABIs of a project in creation order."""
        return self._scan(self._tables.contract_abis, "project_contract_abis", to_key(project_id))

    def traffic_limit(self, traffic_limit_id: int) -> TrafficLimit | None:
        """The traffic limit with this id."""
        return self._get(self._tables.traffic_limits, traffic_limit_id)

    def traffic_limits(self, project_id: int) -> list[TrafficLimit]:
        """The traffic limits of a project in creation order."""
        return self._scan(self._tables.traffic_limits, "project_traffic_limits", to_key(project_id))

    def resource(self, resource_id: int) -> Resource | None:
        """The resource with this id."""
        return self._get(self._tables.resources, resource_id)

    def resources(self, account_id: int | None = None) -> list[Resource]:
        """All resources, or those of one account, in creation order."""
        if account_id is None:
            return self._all(self._tables.resources)
        own = self._scan(self._tables.resources, "resource_contents", to_key(account_id))
        return sorted(own, key=lambda resource: resource.resource_id)

    def resource_with_content(self, account_id: int, sha256: bytes) -> Resource | None:
        """The resource of an account whose content has this SHA-256."""
        return self._find(self._tables.resources, "resource_contents", to_key(account_id) + sha256)

    def access_key_with_digest(self, digest: bytes) -> AccessKey | None:
        """The access key whose random part has this SHA-256."""
        return self._find(self._tables.access_keys, "access_key_digests", digest)

    def access_key_named(self, account_id: int, name: str) -> AccessKey | None:
        """The access key of an account with exactly this name."""
        return self._find_text(self._tables.access_keys, "access_key_names", account_id, name)

    def access_keys(self, account_id: int) -> list[AccessKey]:
        """The access keys that an account owns, with those of its publishers, in creation order."""
        return self._scan(self._tables.access_keys, "account_access_keys", to_key(account_id))

    def access_keys_of(self, identity_id: int) -> list[AccessKey]:
        """The access keys that stand for an account or for a publisher, in creation order."""
        return self._scan(self._tables.access_keys, "identity_access_keys", to_key(identity_id))

    def operator(self, operator_id: int) -> Operator | None:
        """The operator with this id."""
        return self._get(self._tables.operators, operator_id)

    def operator_named(self, account_id: int, name: str) -> Operator | None:
        """The operator of an account with exactly this name."""
        return self._find_text(self._tables.operators, "operator_names", account_id, name)

    def operators(self, account_id: int, limit: int | None = None) -> list[Operator]:
        """The operators of an account in creation order, `limit` at most."""
        return self._scan(self._tables.operators, "account_operators", to_key(account_id), limit)

    def project_operator(self, project_id: int) -> ProjectOperator | None:
        """The binding of a project to an operator; None when it uses its account's default."""
        return self._get(self._tables.project_operators, project_id)

    def projects_of_operator(self, operator_id: int) -> list[ProjectOperator]:
        """The projects that are bound to an operator."""
        return self._scan(self._tables.project_operators, "operator_projects", to_key(operator_id))

    def operator_of_project(self, project: Project) -> Operator | None:
        """The operator that signs for a project: the bound operator, else its account's default."""
        bound = self.project_operator(project.project_id)
        if bound is not None:
            return self.operator(bound.operator_id)
        return self.operator_named(project.account_id, DEFAULT_OPERATOR)

    def usage(self, account_id: int, name: str, stored: StoredBytes = nothing_stored) -> int:
        """Return an account's usage of a quota.

        Args:
            account_id: the account.
            name: one of `quotas.NAMES`. The result is 0 for quotas that the registry does not
                count, such as processes.
            stored: returns the disk usage of a project; called only for the quota of bytes.
        """
        with self._reading() as txn:
            return quota_usage(txn, self._tables, account_id, name, stored)

    def audit(self, before: int, limit: int, matches: Callable[[AuditRow], bool]) -> AuditPage:
        """A page of the audit log, newest row first; see `storage.registry.audit.page`."""
        with self._reading() as txn:
            return page(txn, self._tables.audit, before, limit, matches)


class RegistrySnapshot(RegistryQueries):
    """Reads within one transaction, which the caller ends."""

    def __init__(self, tables: RegistryTables, txn: Transaction) -> None:
        self._tables = tables
        self._txn = txn

    def _reading(self) -> AbstractContextManager[Transaction]:
        return nullcontext(self._txn)

    def version(self) -> int:
        """The change counter as of this snapshot."""
        return from_key(self._txn.get(CHANGES_CELL, b"", db=self._tables.meta))


class RegistryReader(RegistryQueries):
    """A read-only view of the registry. Each read sees all commits made before it.

    Attributes:
        lease: how long this copy may be used; without end unless it is set.

    Open one per process, after the fork. In the writer's own process use
    `RegistryWriter.reader()`: LMDB refuses to open an environment twice.

    Raises:
        StoreError: `path` holds no registry, or one that is foreign, corrupt, of a newer schema
            or not readable for this process.
    """

    def __init__(self, path: Path) -> None:
        environment = open_environment(path, map_size=0, readonly=True)
        try:
            self._attach(environment, RegistryTables(environment, create=False))
        except BaseException:
            environment.close()
            raise

    @classmethod
    def sharing(cls, environment: lmdb.Environment, tables: RegistryTables) -> RegistryReader:
        """Return a reader over an environment that this process has open; its owner closes it."""
        reader = cls.__new__(cls)
        reader._attach(environment, tables)
        return reader

    def _attach(self, environment: lmdb.Environment, tables: RegistryTables) -> None:
        self._environment = environment
        self._tables = tables
        self._meta = tables.meta
        self.lease: Lease = NoLease()

    def version(self) -> int:
        """The change counter: it grows with every change and stays otherwise."""
        try:
            txn = self._environment.begin(db=self._meta)
            changes = txn.get(CHANGES_CELL, b"")
            txn.abort()  # returns the transaction to the pool of spare transactions
        except lmdb.Error as error:
            raise store_error(None, error) from error
        return from_key(changes)

    @contextmanager
    def transaction(self) -> Iterator[tuple[RegistryTables, Transaction]]:
        """The tables and a transaction over them, for consistency checks."""
        with self._reading() as txn:
            yield self._tables, txn

    @contextmanager
    def snapshot(self) -> Iterator[RegistrySnapshot]:
        """Let several reads see the same state.

        Keep it short: LMDB cannot reuse freed pages while the snapshot is open.
        """
        with self._reading() as txn:
            yield RegistrySnapshot(self._tables, txn)

    @contextmanager
    def _reading(self) -> Iterator[Transaction]:
        with store_errors(), self._environment.begin() as txn:
            yield txn

    def counts(self) -> dict[str, int]:
        """The number of rows of each main table, by name."""
        with self.transaction() as (tables, txn):
            return {name: getattr(tables, name).count(txn) for name in _COUNTED}

    @property
    def used_bytes(self) -> int:
        """The most bytes that the registry has ever used of its size limit."""
        with store_errors():
            return used_bytes(self._environment)

    def close(self) -> None:
        """Close the environment. Do not call this on a reader that shares its environment, because
        it would be closed for the owner, too."""
        self._environment.close()


def _as_id(text: str) -> int:
    """Parse a decimal id; return 0, which is never assigned, if the text is not an id."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        return 0
    identifier = int(text)
    return identifier if identifier < LIMIT else 0
