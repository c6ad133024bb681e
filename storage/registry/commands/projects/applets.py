"""Applets, their instances and strategies: commands that change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fieldbrook.core import quotas
from fieldbrook.core.errors import (
    AccountNotFoundError,
    AppletNameConflictError,
    AppletVersionNotFoundError,
    StrategyConflictError,
    StrategyNotFoundError,
)
from fieldbrook.core.model import (
    MEMORY,
    NAME_LIMIT,
    PER_EVENT,
    REMOVED,
    REUSE_EVENTS,
    STARTED,
    Applet,
    AppletVersion,
    Resource,
    Strategy,
)
from fieldbrook.storage.lmdb.ids import to_key
from fieldbrook.storage.lmdb.table import text_key
from fieldbrook.storage.registry.commands.change import Change, Commands, command
from fieldbrook.storage.registry.tables import RegistryTables


class Module(msgspec.Struct, array_like=True, frozen=True):
    """A compiled upload: `size` is in bytes, `handlers` are its exports of `(i32) -> i32`."""

    filename: str
    sha256: str
    md5: str
    size: int
    handlers: list[str]


class Cache(msgspec.Struct, array_like=True, frozen=True):
    """Where an applet keeps its key-value pairs; see `model.Applet`."""

    mode: str = MEMORY
    prefix: str = ""


class Deployed(msgspec.Struct, array_like=True, frozen=True):
    """The result of uploading an applet."""

    applet: Applet
    resource: Resource
    strategies: list[Strategy]


class AppletCommands(Commands):
    """Commands on applets, instances and strategies."""

    @command
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
        isolation: str = PER_EVENT,
        reuse_events: int = REUSE_EVENTS,
        cache: Cache | None = None,
    ) -> Deployed:
        """Create an applet, its started instance and its strategies in one transaction.

        Args:
            account_id: the owner of the resource; the same content is stored once per account.
            name: its name; a suffix is added when the project has an applet of that name.
            strategies: pairs of event type and handler. A handler that is not among `handlers`
                makes a dead strategy (`model.Resource.exports`).

        Raises:
            ProjectNotFoundError, AccountNotFoundError: no such project or account.
            StrategyConflictError: a pair occurs twice.
            QuotaExceededError: an account would exceed its quota. Applets and strategies count
                for the project's account, modules and bytes for the resource's.
        """
        module = Module(filename, sha256, md5, size, handlers)
        cache = cache or Cache()
        with self.change() as change:
            owner_id = change.project(project_id).account_id
            if change.now.account(account_id) is None:
                raise AccountNotFoundError(account=account_id)
            self.require_quota(change, owner_id, quotas.APPLETS)
            self.require_quota(change, owner_id, quotas.STRATEGIES, len(strategies))
            resource = self._resource(change, account_id, module)
            applet = change.put(
                self.tables.applets,
                Applet(
                    applet_id=change.new_id(),
                    project_id=project_id,
                    resource_id=resource.resource_id,
                    name=self._free_applet_name(change, project_id, name),
                    wasm_name=wasm_name,
                    instance_id=change.new_id(),
                    sha256=resource.sha256,
                    isolation=isolation,
                    reuse_events=reuse_events,
                    version=1,
                    cache_mode=cache.mode,
                    cache_prefix=cache.prefix,
                    created_at=change.time_ms,
                    updated_at=change.time_ms,
                ),
            )
            self._add_version(change, applet)
            rules = [self._add_strategy(change, applet, rule) for rule in strategies]
            return Deployed(applet, resource, rules)

    @command
    def update_applet(
        self,
        applet_id: int,
        name: str | None = None,
        wasm_name: str | None = None,
        module: Module | None = None,
        strategies: Sequence[tuple[str, str]] | None = None,
        isolation: str | None = None,
        reuse_events: int | None = None,
        cache: Cache | None = None,
        versions_kept: int = 1,
    ) -> Deployed:
        """Change an applet; None leaves a field as it is. `strategies` replaces all it had.

        The project's account owns a new module, which becomes the latest version and starts
        the instance. The `versions_kept` latest versions stay, and the running one. Strategies
        whose handler the module does not export are dead, whether given or kept.

        Raises:
            AppletNotFoundError: no such applet.
            AppletNameConflictError: another applet of the project has the name.
            StrategyConflictError: a pair occurs twice.
            QuotaExceededError: the project's account would exceed its quota.
        """
        with self.change() as change:
            applet = change.applet(applet_id)
            before = applet.resource_id
            changed: dict[str, Any] = {}
            if name is not None and name != applet.name:
                self._refuse_taken_applet_name(change, applet.project_id, name)
                changed["name"] = name
            if wasm_name is not None:
                changed["wasm_name"] = wasm_name
            if isolation is not None:
                changed["isolation"] = isolation
            if reuse_events is not None:
                changed["reuse_events"] = reuse_events
            if cache is not None:
                changed |= {"cache_mode": cache.mode, "cache_prefix": cache.prefix}
            if module is None:
                resource = change.resource(applet.resource_id)
            else:
                owner = change.project(applet.project_id).account_id
                resource = self._resource(change, owner, module)
                changed |= self._running(change, applet, resource)
            another = resource.resource_id != applet.resource_id
            if another:
                known = change.now.applet_versions(applet_id)
                changed["version"] = max([applet.version, *(v.number for v in known)]) + 1
            applet = change.update(self.tables.applets, applet, **changed)
            if another:
                self._add_version(change, applet)
                self._drop_versions(change, applet, versions_kept)
                change.let_go(before)
            rules = self._keep_or_replace(change, applet, strategies)
            return Deployed(applet, resource, rules)

    @command
    def roll_back_applet(self, applet_id: int, number: int) -> Deployed:
        """Run an earlier version again and start the instance; the strategies stay.

        Raises:
            AppletNotFoundError: no such applet.
            AppletVersionNotFoundError: the version does not exist or was not kept.
        """
        with self.change() as change:
            applet = change.applet(applet_id)
            version = change.now.applet_version(applet_id, number)
            if version is None:
                raise AppletVersionNotFoundError(applet=applet_id, version=number)
            before = applet.resource_id
            resource = change.resource(version.resource_id)
            applet = change.update(
                self.tables.applets,
                applet,
                wasm_name=version.wasm_name,
                version=number,
                **self._running(change, applet, resource),
            )
            change.let_go(before)
            return Deployed(applet, resource, change.now.strategies_of_applet(applet_id))

    @command
    def remove_applets(self, project_id: int, applet_ids: Sequence[int]) -> int:
        """Remove applets of this project by id, ignoring others; return the number removed."""
        with self.change() as change:
            wanted = set(applet_ids)
            own = [a for a in change.now.applets(project_id) if a.applet_id in wanted]
            for applet in own:
                drop_applet(change, self.tables, applet)
            return len(own)

    @command
    def remove_applet(self, applet_id: int) -> Applet:
        """Remove an applet, its instance and its strategies; the resource remains.

        Raises:
            AppletNotFoundError: no such applet.
        """
        with self.change() as change:
            applet = change.applet(applet_id)
            drop_applet(change, self.tables, applet)
            return applet

    @command
    def create_instance(self, applet_id: int, cache: Cache | None = None) -> Applet:
        """Start the instance of an applet; create a new one if it was removed.

        Raises:
            AppletNotFoundError: no such applet.
        """
        with self.change() as change:
            applet = change.applet(applet_id)
            changed: dict[str, Any] = {"state": STARTED}
            if applet.state == REMOVED:
                changed["instance_id"] = change.new_id()
            if cache is not None:
                changed |= {"cache_mode": cache.mode, "cache_prefix": cache.prefix}
            return change.update(self.tables.applets, applet, **changed)

    @command
    def remove_instances(self, project_id: int, instance_ids: Sequence[int]) -> int:
        """Remove instances of this project by id, ignoring others; return the number removed.

        Their applets stay, but run no events.
        """
        with self.change() as change:
            found = [change.now.applet_of_instance(n) for n in instance_ids]
            own = [a for a in found if a is not None and a.project_id == project_id]
            for applet in own:
                change.update(self.tables.applets, applet, state=REMOVED)
            return len(own)

    @command
    def set_instance_state(self, instance_id: int, state: str) -> Applet:
        """Start or stop an instance; one that is in that state already is left alone.

        Raises:
            InstanceNotFoundError: no such instance.
        """
        with self.change() as change:
            applet = change.instance(instance_id)
            return change.update(self.tables.applets, applet, state=state)

    @command
    def restart_instance(self, instance_id: int, cache: Cache | None = None) -> Applet:
        """Restart an instance. It is a change in any case, so that the project notices it.

        Raises:
            InstanceNotFoundError: no such instance.
        """
        with self.change() as change:
            applet = change.instance(instance_id)
            changed = {"cache_mode": cache.mode, "cache_prefix": cache.prefix} if cache else {}
            return change.touch(self.tables.applets, applet, state=STARTED, **changed)

    @command
    def create_strategies(
        self, project_id: int, strategies: Sequence[tuple[int, str, str]]
    ) -> list[Strategy]:
        """Create all strategies or none; each is (applet id, event type, handler).

        Raises:
            ProjectNotFoundError: no such project.
            AppletNotFoundError: the project has no such applet.
            StrategyConflictError: a strategy exists already, or is given twice.
            QuotaExceededError: the project's account would exceed its quota.
        """
        with self.change() as change:
            owner_id = change.project(project_id).account_id
            self.require_quota(change, owner_id, quotas.STRATEGIES, len(strategies))
            return [
                self._add_strategy(
                    change, change.applet_in(project_id, applet_id), (event_type, handler)
                )
                for applet_id, event_type, handler in strategies
            ]

    @command
    def create_strategy(
        self,
        project_id: int,
        applet_id: int,
        event_type: str,
        handler: str,
        auto_collect_metric: bool | None = None,
    ) -> Strategy:
        """Create one strategy.

        Raises:
            ProjectNotFoundError, AppletNotFoundError, StrategyConflictError,
            QuotaExceededError: as `create_strategies`.
        """
        with self.change() as change:
            owner_id = change.project(project_id).account_id
            applet = change.applet_in(project_id, applet_id)
            self.require_quota(change, owner_id, quotas.STRATEGIES)
            return self._add_strategy(change, applet, (event_type, handler), auto_collect_metric)

    @command
    def update_strategy(
        self,
        strategy_id: int,
        applet_id: int,
        event_type: str,
        handler: str,
        auto_collect_metric: bool | None = None,
    ) -> Strategy:
        """Change a strategy; the new applet must be of the same project.

        None leaves `auto_collect_metric` as it is.

        Raises:
            StrategyNotFoundError: no such strategy.
            AppletNotFoundError, StrategyConflictError: as when it is created.
        """
        with self.change() as change:
            strategy = change.now.strategy(strategy_id)
            if strategy is None:
                raise StrategyNotFoundError(what=f"strategy {strategy_id}")
            applet = change.applet_in(strategy.project_id, applet_id)
            same = change.rule(applet_id, event_type, handler)
            if same is not None and same.strategy_id != strategy_id:
                raise _conflict(change, applet, event_type, handler)
            if auto_collect_metric is None:
                auto_collect_metric = strategy.auto_collect_metric
            return change.update(
                self.tables.strategies,
                strategy,
                applet_id=applet_id,
                event_type=event_type,
                handler=handler,
                auto_collect_metric=auto_collect_metric,
            )

    @command
    def remove_strategies(self, project_id: int, strategy_ids: Sequence[int]) -> int:
        """Remove strategies of this project by id, ignoring others; return the number removed."""
        with self.change() as change:
            found = {n: change.now.strategy(n) for n in strategy_ids}
            own = [s for s in found.values() if s and s.project_id == project_id]
            for strategy in own:
                change.remove(self.tables.strategies, strategy)
            return len(own)

    def _resource(self, change: Change, account_id: int, module: Module) -> Resource:
        key = to_key(account_id) + bytes.fromhex(module.sha256)
        found = self.tables.resources.find(change.txn, "resource_contents", key)
        if found is not None and found.deleted:  # uploaded again: undo the deletion
            return change.touch(
                self.tables.resources,
                found,
                deleted=False,
                filename=module.filename,
                created_at=change.time_ms,
            )
        if found is not None:
            return found
        self.require_quota(change, account_id, quotas.MODULES)
        self.require_quota(change, account_id, quotas.BYTES, module.size)
        return change.put(
            self.tables.resources,
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
        change: Change,
        applet: Applet,
        rule: tuple[str, str],
        auto_collect_metric: bool | None = None,
    ) -> Strategy:
        event_type, handler = rule
        if change.rule(applet.applet_id, event_type, handler) is not None:
            raise _conflict(change, applet, event_type, handler)
        return change.put(
            self.tables.strategies,
            Strategy(
                strategy_id=change.new_id(),
                project_id=applet.project_id,
                applet_id=applet.applet_id,
                event_type=event_type,
                handler=handler,
                auto_collect_metric=auto_collect_metric,
                created_at=change.time_ms,
                updated_at=change.time_ms,
            ),
        )

    def _running(self, change: Change, applet: Applet, resource: Resource) -> dict[str, Any]:
        """Return the changed fields of an applet that starts this module.

        An applet whose instance was removed gets a new instance id.
        """
        fields = {
            "resource_id": resource.resource_id,
            "sha256": resource.sha256,
            "state": STARTED,
        }
        if applet.state == REMOVED:
            fields["instance_id"] = change.new_id()
        return fields

    def _add_version(self, change: Change, applet: Applet) -> None:
        change.put(
            self.tables.applet_versions,
            AppletVersion(
                version_id=change.new_id(),
                applet_id=applet.applet_id,
                number=applet.version,
                resource_id=applet.resource_id,
                sha256=applet.sha256,
                wasm_name=applet.wasm_name,
                created_at=change.time_ms,
                updated_at=change.time_ms,
            ),
        )

    def _drop_versions(self, change: Change, applet: Applet, kept: int) -> None:
        versions = change.now.applet_versions(applet.applet_id)
        for version in versions[: max(0, len(versions) - kept)]:
            if version.number != applet.version:
                change.remove(self.tables.applet_versions, version)
                change.let_go(version.resource_id)

    def _keep_or_replace(
        self,
        change: Change,
        applet: Applet,
        strategies: Sequence[tuple[str, str]] | None,
    ) -> list[Strategy]:
        kept = change.now.strategies_of_applet(applet.applet_id)
        if strategies is None:
            return kept
        for strategy in kept:
            change.remove(self.tables.strategies, strategy)
        owner_id = change.project(applet.project_id).account_id
        # The removed strategies no longer count. An account beyond its quota may still replace
        # strategies by the same number or fewer.
        if len(strategies) > len(kept):
            self.require_quota(change, owner_id, quotas.STRATEGIES, len(strategies))
        return [self._add_strategy(change, applet, rule) for rule in strategies]

    def _refuse_taken_applet_name(self, change: Change, project_id: int, name: str) -> None:
        if self._is_taken(change, project_id, name):
            raise AppletNameConflictError(what=f"applet {name}")

    def _free_applet_name(self, change: Change, project_id: int, name: str) -> str:
        """Return `name`, with the first of the suffixes `_2`, `_3`, ... if it is taken."""
        free, number = name, 1
        while self._is_taken(change, project_id, free):
            number += 1
            suffix = f"_{number}"
            free = name[: NAME_LIMIT - len(suffix)] + suffix
        return free

    def _is_taken(self, change: Change, project_id: int, name: str) -> bool:
        key = to_key(project_id) + text_key(name)
        return self.tables.applets.find(change.txn, "applet_names", key) is not None


def drop_applet(change: Change, tables: RegistryTables, applet: Applet) -> None:
    """Remove an applet, its strategies and its versions.

    Its resources remain, except those that are marked as deleted and not used any more.
    """
    for strategy in change.now.strategies_of_applet(applet.applet_id):
        change.remove(tables.strategies, strategy)
    versions = change.now.applet_versions(applet.applet_id)
    for version in versions:
        change.remove(tables.applet_versions, version)
    change.remove(tables.applets, applet)
    change.let_go(applet.resource_id, *(version.resource_id for version in versions))


def _conflict(
    change: Change, applet: Applet, event_type: str, handler: str
) -> StrategyConflictError:
    return StrategyConflictError(
        project=change.project(applet.project_id).name,
        applet=applet.name,
        event_type=event_type,
        handler=handler,
    )
