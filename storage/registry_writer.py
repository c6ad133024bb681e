"""The registry's only writer: one method per command, one synced transaction each.

A command that changes something moves the change counter with it; one that is refused,
or finds everything as it should be, leaves no trace. Ownership is not checked here: the
gateway decides who may ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import lmdb
import msgspec

from fieldbrook.clock import Clock
from fieldbrook.errors import (
    AccountIdentityConflictError,
    AccountNotFoundError,
    AppletNameConflictError,
    AppletNotFoundError,
    HandlerNotExportedError,
    InstanceNotFoundError,
    InvalidOldPasswordError,
    NoAdminPermissionError,
    ProjectNameConflictError,
    ProjectNotFoundError,
    PublisherConflictError,
    PublisherNotFoundError,
    ResourceInUseError,
    ResourceNotFoundError,
    StrategyConflictError,
    StrategyNotFoundError,
)
from fieldbrook.model import (
    STARTED,
    Account,
    Applet,
    Project,
    Publisher,
    Record,
    Resource,
    Strategy,
)
from fieldbrook.storage.environment import open_environment, store_errors
from fieldbrook.storage.ids import from_key, next_id, to_key
from fieldbrook.storage.registry_reader import RegistryReader, RegistrySnapshot
from fieldbrook.storage.registry_tables import CHANGES_CELL, LAST_ID_CELL, RegistryTables
from fieldbrook.storage.table import OpenTable, text_key
from fieldbrook.tokens import issue_publisher_token

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

R = TypeVar("R", bound=Record)


class Module(msgspec.Struct, array_like=True, frozen=True):
    """A compiled upload: `size` in bytes, `handlers` its exports `(i32) -> i32`."""

    filename: str
    sha256: str
    md5: str
    size: int
    handlers: list[str]


class Deployed(msgspec.Struct, array_like=True, frozen=True):
    """What uploading an applet made."""

    applet: Applet
    resource: Resource
    strategies: list[Strategy]


class RegistryWriter:
    """Commands that change the registry. Open it in one process, after the fork.

    Args:
        path: the registry's folder, created when absent.
        map_size: bytes it may grow to.
        clock: Unix milliseconds now.
        token_key: signs publishers' tokens.

    Every command raises `StoreError` when the store refuses the write; nothing of it has
    happened then.
    """

    def __init__(self, path: Path, map_size: int, clock: Clock, token_key: bytes) -> None:
        self._environment = open_environment(path, map_size=map_size)
        try:
            self._tables = RegistryTables(self._environment, create=True)
        except BaseException:
            self._environment.close()
            raise
        self._clock = clock
        self._token_key = token_key

    def reader(self) -> RegistryReader:
        """A reader for this process, over the writer's environment."""
        return RegistryReader.sharing(self._environment, self._tables)

    def close(self) -> None:
        """Close the environment; its readers in this process end with it."""
        self._environment.close()

    @contextmanager
    def _change(self) -> Iterator[_Change]:
        with store_errors(), self._environment.begin(write=True) as txn:
            change = _Change(txn, self._tables, self._clock())
            yield change
            change.seal()

    # ------------------------------------------------------------ accounts

    def create_account(
        self, username: str, password_hash: str, role: str, only_if_first: bool = False
    ) -> Account:
        """Create an account.

        Raises:
            AccountIdentityConflictError: the username is taken.
            NoAdminPermissionError: `only_if_first` and there is an administrator already.
        """
        with self._change() as change:
            if only_if_first and change.now.has_administrator():
                raise NoAdminPermissionError(reason="an administrator exists already")
            if change.now.account_named(username):
                raise AccountIdentityConflictError(what=f"username {username}")
            return change.put(
                self._tables.accounts,
                Account(
                    account_id=change.new_id(),
                    username=username,
                    role=role,
                    password_hash=password_hash,
                    created_at=change.time_ms,
                    updated_at=change.time_ms,
                ),
            )

    def update_password(self, account_id: int, old_hash: str, new_hash: str) -> Account:
        """Replace a password's hash, provided it still is the one the caller verified.

        Raises:
            AccountNotFoundError: no such account.
            InvalidOldPasswordError: the password was changed meanwhile.
        """
        with self._change() as change:
            account = change.now.account(account_id)
            if account is None:
                raise AccountNotFoundError(account=account_id)
            if account.password_hash != old_hash:
                raise InvalidOldPasswordError()
            return change.update(self._tables.accounts, account, password_hash=new_hash)

    # ------------------------------------------------------------ projects

    def create_project(
        self,
        account_id: int,
        name: str,
        version: str = "",
        protocol: str = "",
        description: str = "",
        env: Sequence[tuple[str, str]] = (),
    ) -> Project:
        """Create a project.

        Raises:
            AccountNotFoundError: no such account.
            ProjectNameConflictError: the name is taken, by whomever.
        """
        with self._change() as change:
            if change.now.account(account_id) is None:
                raise AccountNotFoundError(account=account_id)
            if change.now.project_named(name):
                raise ProjectNameConflictError(what=f"project {name}")
            return change.put(
                self._tables.projects,
                Project(
                    project_id=change.new_id(),
                    account_id=account_id,
                    name=name,
                    version=version,
                    protocol=protocol,
                    description=description,
                    env=list(env),
                    created_at=change.time_ms,
                    updated_at=change.time_ms,
                ),
            )

    def remove_project(self, project_id: int) -> Project:
        """Remove a project, its strategies, publishers and applets; resources remain.

        Raises:
            ProjectNotFoundError: no such project.
        """
        with self._change() as change:
            project = change.project(project_id)
            for strategy in change.now.strategies(project_id):
                change.remove(self._tables.strategies, strategy)
            for publisher in change.now.publishers(project_id):
                change.remove(self._tables.publishers, publisher)
            for applet in change.now.applets(project_id):
                change.remove(self._tables.applets, applet)
            change.remove(self._tables.projects, project)
            return project

    # ------------------------------------------------------------ applets

    def create_applet(
        self,
        project_id: int,
        account_id: int,
        name: str,
        wasm_name: str,
        filename: str,
        sha256: str,
        md5: str,
        size: int,
        handlers: list[str],
        strategies: Sequence[tuple[str, str]],
    ) -> Deployed:
        """Create an applet, its started instance and its strategies in one.

        Args:
            account_id: who owns the resource; the same content is stored once per account.
            strategies: pairs of event type and handler.

        Raises:
            ProjectNotFoundError, AccountNotFoundError: no such project or account.
            AppletNameConflictError: the project has an applet of that name.
            StrategyConflictError: a pair occurs twice.
            HandlerNotExportedError: a handler is not among `handlers`.
        """
        module = Module(filename, sha256, md5, size, handlers)
        with self._change() as change:
            change.project(project_id)
            if change.now.account(account_id) is None:
                raise AccountNotFoundError(account=account_id)
            self._refuse_taken_applet_name(change, project_id, name)
            resource = self._resource(change, account_id, module)
            applet = change.put(
                self._tables.applets,
                Applet(
                    applet_id=change.new_id(),
                    project_id=project_id,
                    resource_id=resource.resource_id,
                    name=name,
                    wasm_name=wasm_name,
                    instance_id=change.new_id(),
                    sha256=resource.sha256,
                    created_at=change.time_ms,
                    updated_at=change.time_ms,
                ),
            )
            rules = [
                self._add_strategy(change, applet, resource, rule, f"strategies[{n}].handler")
                for n, rule in enumerate(strategies)
            ]
            return Deployed(applet, resource, rules)

    def update_applet(
        self,
        applet_id: int,
        name: str | None = None,
        wasm_name: str | None = None,
        module: Module | None = None,
        strategies: Sequence[tuple[str, str]] | None = None,
    ) -> Deployed:
        """Change what is given of an applet; `strategies` replaces all it had.

        A new module is owned by the project's account and starts the instance.

        Raises:
            AppletNotFoundError: no such applet.
            AppletNameConflictError: another applet of the project has the name.
            StrategyConflictError: a pair occurs twice.
            HandlerNotExportedError: a strategy, given or kept, names a handler the module
                does not export.
        """
        with self._change() as change:
            applet = change.applet(applet_id)
            changed: dict[str, Any] = {}
            if name is not None and name != applet.name:
                self._refuse_taken_applet_name(change, applet.project_id, name)
                changed["name"] = name
            if wasm_name is not None:
                changed["wasm_name"] = wasm_name
            if module is None:
                resource = change.resource(applet.resource_id)
            else:
                owner = change.project(applet.project_id).account_id
                resource = self._resource(change, owner, module)
                changed |= {
                    "resource_id": resource.resource_id,
                    "sha256": resource.sha256,
                    "state": STARTED,
                }
            applet = change.update(self._tables.applets, applet, **changed)
            rules = self._keep_or_replace(change, applet, resource, strategies)
            return Deployed(applet, resource, rules)

    def remove_applet(self, applet_id: int) -> Applet:
        """Remove an applet, its instance and its strategies; the resource remains.

        Raises:
            AppletNotFoundError: no such applet.
        """
        with self._change() as change:
            applet = change.applet(applet_id)
            for strategy in change.now.strategies_of_applet(applet_id):
                change.remove(self._tables.strategies, strategy)
            change.remove(self._tables.applets, applet)
            return applet

    def set_instance_state(self, instance_id: int, state: str) -> Applet:
        """Start or stop an instance; one that is in that state already is left alone.

        Raises:
            InstanceNotFoundError: no such instance.
        """
        with self._change() as change:
            applet = change.instance(instance_id)
            return change.update(self._tables.applets, applet, state=state)

    def restart_instance(self, instance_id: int) -> Applet:
        """Start an instance anew: a change in any case, so that its project takes notice.

        Raises:
            InstanceNotFoundError: no such instance.
        """
        with self._change() as change:
            applet = change.instance(instance_id)
            return change.touch(self._tables.applets, applet, state=STARTED)

    # ------------------------------------------------------------ strategies

    def create_strategies(
        self, project_id: int, strategies: Sequence[tuple[int, str, str]]
    ) -> list[Strategy]:
        """Create strategies, all or none: applet id, event type and handler of each.

        Raises:
            ProjectNotFoundError: no such project.
            AppletNotFoundError: the project has no such applet.
            StrategyConflictError: one exists already, or is given twice.
            HandlerNotExportedError: a module does not export the handler.
        """
        with self._change() as change:
            change.project(project_id)
            created = []
            for n, (applet_id, event_type, handler) in enumerate(strategies):
                applet = change.applet_in(project_id, applet_id)
                resource = change.resource(applet.resource_id)
                field = f"strategies[{n}].handler"
                rule = event_type, handler
                created.append(self._add_strategy(change, applet, resource, rule, field))
            return created

    def update_strategy(
        self, strategy_id: int, applet_id: int, event_type: str, handler: str
    ) -> Strategy:
        """Change a strategy; its applet may be another one of the same project.

        Raises:
            StrategyNotFoundError: no such strategy.
            AppletNotFoundError, StrategyConflictError, HandlerNotExportedError: as when
                it is created.
        """
        with self._change() as change:
            strategy = change.now.strategy(strategy_id)
            if strategy is None:
                raise StrategyNotFoundError(what=f"strategy {strategy_id}")
            applet = change.applet_in(strategy.project_id, applet_id)
            _refuse_unexported(change.resource(applet.resource_id), handler, "handler")
            same = change.rule(applet_id, event_type, handler)
            if same is not None and same.strategy_id != strategy_id:
                raise _conflict(applet, event_type, handler)
            return change.update(
                self._tables.strategies,
                strategy,
                applet_id=applet_id,
                event_type=event_type,
                handler=handler,
            )

    def remove_strategies(self, project_id: int, strategy_ids: Sequence[int]) -> int:
        """Remove those of the ids that are strategies of this project; how many were."""
        with self._change() as change:
            found = {n: change.now.strategy(n) for n in strategy_ids}
            own = [s for s in found.values() if s and s.project_id == project_id]
            for strategy in own:
                change.remove(self._tables.strategies, strategy)
            return len(own)

    # ------------------------------------------------------------ publishers

    def create_publisher(self, project_id: int, name: str, key: str) -> Publisher:
        """Create a publisher with a token of its own.

        Raises:
            ProjectNotFoundError: no such project.
            PublisherConflictError: the project has a publisher with that key.
        """
        with self._change() as change:
            change.project(project_id)
            self._refuse_taken_publisher_key(change, project_id, key)
            publisher_id = change.new_id()
            return change.put(
                self._tables.publishers,
                Publisher(
                    publisher_id=publisher_id,
                    project_id=project_id,
                    name=name,
                    key=key,
                    token=issue_publisher_token(self._token_key, publisher_id),
                    created_at=change.time_ms,
                    updated_at=change.time_ms,
                ),
            )

    def update_publisher(self, publisher_id: int, name: str, key: str) -> Publisher:
        """Rename a publisher; its token stays.

        Raises:
            PublisherNotFoundError: no such publisher.
            PublisherConflictError: another publisher of the project has that key.
        """
        with self._change() as change:
            publisher = self._tables.publishers.get(change.txn, publisher_id)
            if publisher is None:
                raise PublisherNotFoundError(pub_id=publisher_id)
            if key != publisher.key:
                self._refuse_taken_publisher_key(change, publisher.project_id, key)
            return change.update(self._tables.publishers, publisher, name=name, key=key)

    def remove_publishers(self, project_id: int, publisher_ids: Sequence[int]) -> int:
        """Remove those of the ids that are publishers of this project; how many were."""
        with self._change() as change:
            found = {n: self._tables.publishers.get(change.txn, n) for n in publisher_ids}
            own = [p for p in found.values() if p and p.project_id == project_id]
            for publisher in own:
                change.remove(self._tables.publishers, publisher)
            return len(own)

    # ------------------------------------------------------------ resources

    def remove_resource(self, resource_id: int) -> Resource:
        """Remove a resource no applet uses.

        Raises:
            ResourceNotFoundError: no such resource.
            ResourceInUseError: an applet uses it; the description names one.
        """
        with self._change() as change:
            resource = change.resource(resource_id)
            users = self._tables.applets.scan(change.txn, "resource_applets", to_key(resource_id))
            for applet in users:
                raise ResourceInUseError(resource=resource_id, applet=applet.applet_id)
            change.remove(self._tables.resources, resource)
            return resource

    # ------------------------------------------------------------ parts of commands

    def _resource(self, change: _Change, account_id: int, module: Module) -> Resource:
        key = to_key(account_id) + bytes.fromhex(module.sha256)
        found = self._tables.resources.find(change.txn, "resource_contents", key)
        return found or change.put(
            self._tables.resources,
            Resource(
                resource_id=change.new_id(),
                account_id=account_id,
                sha256=module.sha256,
                md5=module.md5,
                size=module.size,
                filename=module.filename,
                handlers=module.handlers,
                created_at=change.time_ms,
                updated_at=change.time_ms,
            ),
        )

    def _add_strategy(
        self,
        change: _Change,
        applet: Applet,
        resource: Resource,
        rule: tuple[str, str],
        field: str,
    ) -> Strategy:
        event_type, handler = rule
        _refuse_unexported(resource, handler, field)
        if change.rule(applet.applet_id, event_type, handler) is not None:
            raise _conflict(applet, event_type, handler)
        return change.put(
            self._tables.strategies,
            Strategy(
                strategy_id=change.new_id(),
                project_id=applet.project_id,
                applet_id=applet.applet_id,
                event_type=event_type,
                handler=handler,
                created_at=change.time_ms,
                updated_at=change.time_ms,
            ),
        )

    def _keep_or_replace(
        self,
        change: _Change,
        applet: Applet,
        resource: Resource,
        strategies: Sequence[tuple[str, str]] | None,
    ) -> list[Strategy]:
        kept = change.now.strategies_of_applet(applet.applet_id)
        if strategies is None:
            for strategy in kept:
                _refuse_unexported(resource, strategy.handler, "file")
            return kept
        for strategy in kept:
            change.remove(self._tables.strategies, strategy)
        return [
            self._add_strategy(change, applet, resource, rule, f"strategies[{n}].handler")
            for n, rule in enumerate(strategies)
        ]

    def _refuse_taken_applet_name(self, change: _Change, project_id: int, name: str) -> None:
        key = to_key(project_id) + text_key(name)
        if self._tables.applets.find(change.txn, "applet_names", key):
            raise AppletNameConflictError(what=f"applet {name}")

    def _refuse_taken_publisher_key(self, change: _Change, project_id: int, key: str) -> None:
        index_key = to_key(project_id) + text_key(key)
        if self._tables.publishers.find(change.txn, "publisher_keys", index_key):
            raise PublisherConflictError(what=f"publisher {key}")


class _Change:
    """One command in the making: its transaction, what it sees, and whether it did anything."""

    def __init__(self, txn: Transaction, tables: RegistryTables, time_ms: int) -> None:
        self.txn = txn
        self.now = RegistrySnapshot(tables, txn)
        self._tables = tables
        self.time_ms = time_ms
        self._changed = False

    def new_id(self) -> int:
        last = from_key(self.txn.get(LAST_ID_CELL, b"", db=self._tables.meta))
        given = next_id(last, self.time_ms)
        self.txn.put(LAST_ID_CELL, to_key(given), db=self._tables.meta)
        return given

    def put(self, table: OpenTable[R], record: R) -> R:
        table.put(self.txn, record)
        self._changed = True
        return record

    def update(self, table: OpenTable[R], record: R, **fields: Any) -> R:
        """`record` with other fields; stored only if that makes it another."""
        if msgspec.structs.replace(record, **fields) == record:
            return record
        return self.touch(table, record, **fields)

    def touch(self, table: OpenTable[R], record: R, **fields: Any) -> R:
        """`record` with other fields and a later `updated_at`, stored in any case."""
        later = max(self.time_ms, record.updated_at + 1)
        return self.put(table, msgspec.structs.replace(record, updated_at=later, **fields))

    def remove(self, table: OpenTable[R], record: R) -> None:
        table.remove(self.txn, record)
        self._changed = True

    def seal(self) -> None:
        if self._changed:
            version = self.now.version() + 1
            self.txn.put(CHANGES_CELL, to_key(version), db=self._tables.meta)

    def project(self, project_id: int) -> Project:
        project = self.now.project(project_id)
        if project is None:
            raise ProjectNotFoundError(project=project_id)
        return project

    def applet(self, applet_id: int) -> Applet:
        applet = self.now.applet(applet_id)
        if applet is None:
            raise AppletNotFoundError(applet=applet_id)
        return applet

    def applet_in(self, project_id: int, applet_id: int) -> Applet:
        applet = self.applet(applet_id)
        if applet.project_id != project_id:
            raise AppletNotFoundError(applet=applet_id)
        return applet

    def instance(self, instance_id: int) -> Applet:
        applet = self.now.applet_of_instance(instance_id)
        if applet is None:
            raise InstanceNotFoundError(instance=instance_id)
        return applet

    def resource(self, resource_id: int) -> Resource:
        resource = self.now.resource(resource_id)
        if resource is None:
            raise ResourceNotFoundError(resource=resource_id)
        return resource

    def rule(self, applet_id: int, event_type: str, handler: str) -> Strategy | None:
        key = to_key(applet_id) + text_key(event_type, handler)
        return self._tables.strategies.find(self.txn, "strategy_rules", key)


def _refuse_unexported(resource: Resource, handler: str, field: str) -> None:
    if handler not in resource.handlers:
        raise HandlerNotExportedError(
            field=field, handler=handler, available=", ".join(resource.handlers) or "none"
        )


def _conflict(applet: Applet, event_type: str, handler: str) -> StrategyConflictError:
    return StrategyConflictError(applet=applet.name, event_type=event_type, handler=handler)
