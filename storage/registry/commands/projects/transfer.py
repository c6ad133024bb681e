"""Import of projects: one command that creates a whole project, with ids of this node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fieldbrook.core import quotas
from fieldbrook.core.errors import (
    ProjectNameConflictError,
    PublisherConflictError,
    StoreError,
)
from fieldbrook.core.model import (
    IDENTITY_PUBLISHER,
    PROJECT_DATABASE,
    AccessKey,
    Applet,
    Project,
    Publisher,
    Record,
)
from fieldbrook.security.access_keys import PUBLISHER_PRIVILEGES, publisher_key_name
from fieldbrook.storage.lmdb.codec import decode_record
from fieldbrook.storage.lmdb.table import OpenTable, text_key
from fieldbrook.storage.registry.commands.change import Change, Commands, command
from fieldbrook.storage.registry.commands.projects.applets import add_version, refuse_taken_name
from fieldbrook.storage.registry.commands.projects.publishers import (
    add_publisher,
    refuse_taken_key,
)
from fieldbrook.storage.registry.commands.projects.resources import Module, add_resource
from fieldbrook.storage.registry.commands.projects.strategies import add_strategy
from fieldbrook.storage.registry.usage import has_tables

if TYPE_CHECKING:
    from fieldbrook.storage.backup.transfer import Exported, ExportedToken

_R = TypeVar("_R", bound=Record)


class TransferCommands(Commands):
    """Commands that import projects from other nodes."""

    @command
    def reserve_ids(self, count: int) -> list[int]:
        """Reserve ids for objects that are created before their record, such as a store."""
        with self.change() as change:
            return [change.new_id() for _ in range(count)]

    @command
    def import_project(
        self,
        account_id: int,
        name: str,
        exported: bytes,
        modules: Sequence[Module],
        project_id: int,
        applet_ids: Sequence[int],
        new_tokens: bool = True,
    ) -> Project:
        """Create a project from the records of another, completely or not at all.

        A dedicated project is also dedicated on this node if the account's quota allows it;
        otherwise it shares a worker.

        Args:
            account_id: the owner on this node.
            name: the name on this node.
            exported: `storage.backup.transfer.Exported`, encoded.
            modules: the compiled modules of its resources, in any order.
            project_id: a reserved id; the store of the project may exist already.
            applet_ids: a reserved id for each applet, in the order of the records.
            new_tokens: give publishers new tokens, even if the export contains the old ones.

        Raises:
            AccountNotFoundError: no such account.
            ProjectNameConflictError: a project of any account has this name.
            PublisherConflictError: another publisher of this node already has one of the old
                tokens.
            QuotaExceededError: the account would exceed one of its quotas.
            StoreError: the records are inconsistent, or the ids were not reserved for them.
        """
        from fieldbrook.storage.backup.transfer import Exported  # archives: 5 % of a start

        given = decode_record(exported, Exported)
        with self.change() as change:
            change.account(account_id)
            if change.now.project_named(name):
                raise ProjectNameConflictError(what=f"project {name}")
            if len(applet_ids) != len(given.applets) or change.now.project(project_id):
                raise StoreError(reason="the ids are not those that were reserved")
            self._require_quotas(change, account_id, given, project_id)
            project = _add_copy(
                change,
                self.tables.projects,
                given.project,
                project_id=project_id,
                account_id=account_id,
                name=name,
                dedicated=given.project.dedicated
                and change.is_within_quota(account_id, quotas.DEDICATED),
            )
            self._import_applets(change, project, given, modules, applet_ids)
            self._import_publishers(change, project, given, new_tokens)
            self._import_rest(change, project, given)
            return project

    def _require_quotas(
        self, change: Change, account_id: int, given: Exported, project_id: int
    ) -> None:
        """Check an account's quotas for a whole import, except its modules (`add_resource`).

        The project's store is in its folder already, but no account's usage contains it yet.
        """
        adding = {
            quotas.PROJECTS: 1,
            quotas.APPLETS: len(given.applets),
            quotas.STRATEGIES: len(given.strategies),
            quotas.PUBLISHERS: len(given.publishers),
            quotas.MONITORS: len(given.monitors),
            quotas.CRON_JOBS: len(given.cron_jobs),
            quotas.ABIS: len(given.contract_abis),
            quotas.DATABASES: sum(
                config.kind == PROJECT_DATABASE and has_tables(config.value)
                for config in given.configs
            ),
            quotas.BYTES: max(1, self.stored(project_id)),
        }
        for name, number in adding.items():
            change.require_quota(account_id, name, number)

    def _import_applets(
        self,
        change: Change,
        project: Project,
        given: Exported,
        modules: Sequence[Module],
        applet_ids: Sequence[int],
    ) -> None:
        by_content = {module.sha256: module for module in modules}
        made: dict[int, Applet] = {}
        for old, applet_id in zip(given.applets, applet_ids, strict=True):
            if old.sha256 not in by_content:
                raise StoreError(reason=f"module {old.sha256} of applet {old.name} is missing")
            resource = add_resource(change, project.account_id, by_content[old.sha256])
            refuse_taken_name(change, project.project_id, old.name)
            applet = _add_copy(
                change,
                self.tables.applets,
                old,
                applet_id=applet_id,
                project_id=project.project_id,
                resource_id=resource.resource_id,
                instance_id=change.new_id(),
            )
            made[old.applet_id] = applet
            add_version(change, applet, project.account_id)
        for strategy in given.strategies:
            if strategy.applet_id not in made:
                raise StoreError(reason=f"strategy {strategy.strategy_id} has no applet")
            applet = made[strategy.applet_id]
            add_strategy(
                change,
                applet,
                (strategy.event_type, strategy.handler),
                strategy.auto_collect_metric,
            )

    def _import_publishers(
        self, change: Change, project: Project, given: Exported, new_tokens: bool
    ) -> None:
        keys = {token.publisher_id: token for token in given.tokens}
        for old in given.publishers:
            refuse_taken_key(change, project.project_id, old.key)
            if new_tokens or not given.with_tokens:
                add_publisher(
                    change,
                    project.project_id,
                    old.name,
                    old.key,
                    access_key=old.token.startswith("w3b_"),
                    event_types=old.event_types,
                    expires_at=old.token_expires_at,
                )
            else:
                self._keep(change, project, old, keys.get(old.publisher_id))

    def _keep(
        self, change: Change, project: Project, old: Publisher, key: ExportedToken | None
    ) -> None:
        """Import a publisher with its old token, so that its devices need no new token."""
        tables = self.tables
        taken = tables.publishers.find(change.txn, "publisher_tokens", text_key(old.token))
        if taken or (key and change.now.access_key_with_digest(key.digest)):
            raise PublisherConflictError(what=f"the token of publisher {old.key}")
        publisher_id = change.new_id()
        _add_copy(
            change,
            tables.publishers,
            old,
            publisher_id=publisher_id,
            project_id=project.project_id,
        )
        if key is None:
            return
        change.add(
            tables.access_keys,
            AccessKey(
                access_key_id=change.new_id(),
                account_id=project.account_id,
                identity_id=publisher_id,
                identity_type=IDENTITY_PUBLISHER,
                name=publisher_key_name(publisher_id),
                digest=key.digest,
                issued_at_s=key.issued_at_s,
                expires_at=key.expires_at,
                privileges=dict(PUBLISHER_PRIVILEGES),
            ),
        )

    def _import_rest(self, change: Change, project: Project, given: Exported) -> None:
        tables, own = self.tables, {"project_id": project.project_id}
        for config in given.configs:
            _add_copy(change, tables.configs, config, config_id=change.new_id(), **own)
        for job in given.cron_jobs:
            _add_copy(change, tables.cron_jobs, job, cron_job_id=change.new_id(), **own)
        for monitor in given.monitors:
            _add_copy(change, tables.monitors, monitor, monitor_id=change.new_id(), **own)
        for abi in given.contract_abis:
            _add_copy(change, tables.contract_abis, abi, abi_id=change.new_id(), **own)
        for limit in given.traffic_limits:
            _add_copy(change, tables.traffic_limits, limit, traffic_limit_id=change.new_id(), **own)


def _add_copy(change: Change, table: OpenTable[_R], record: _R, **fields: Any) -> _R:
    """Add a copy of a record with other fields."""
    return change.add(table, msgspec.structs.replace(record, **fields))
