"""Applets and their versions: commands that create, change and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fieldbrook.core import quotas
from fieldbrook.core.errors import AppletNameConflictError, AppletVersionNotFoundError
from fieldbrook.core.model import (
    NAME_LIMIT,
    PER_EVENT,
    REUSE_EVENTS,
    Applet,
    AppletVersion,
    Resource,
    Strategy,
)
from fieldbrook.storage.lmdb.ids import to_key
from fieldbrook.storage.lmdb.table import text_key
from fieldbrook.storage.registry.commands.change import Change, Commands, command
from fieldbrook.storage.registry.commands.projects.instances import Cache, started
from fieldbrook.storage.registry.commands.projects.resources import Module, add_resource
from fieldbrook.storage.registry.commands.projects.strategies import (
    add_strategy,
    replace_strategies,
)


class Deployed(msgspec.Struct, array_like=True, frozen=True):
    """The result of uploading an applet."""

    applet: Applet
    resource: Resource
    strategies: list[Strategy]


class AppletCommands(Commands):
    """Commands on applets."""

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
        author_id: int = 0,
        compiled_size: int = 0,
    ) -> Deployed:
        """Create an applet, its started instance and its strategies in one transaction.

        Args:
            account_id: the owner of the resource; the same content is stored once per account.
            name: its name; a suffix is added when the project has an applet of that name.
            strategies: pairs of event type and handler. A handler that is not among `handlers`
                makes a dead strategy (`model.Resource.exports`).
            author_id: the account that uploaded the module.
            compiled_size: the size of the compiled module in bytes.

        Raises:
            ProjectNotFoundError, AccountNotFoundError: no such project or account.
            StrategyConflictError: a pair occurs twice.
            QuotaExceededError: an account would exceed its quota. Applets and strategies count
                for the project's account, modules and bytes for the resource's.
        """
        module = Module(filename, sha256, md5, size, handlers, compiled_size)
        cache = cache or Cache()
        with self.change() as change:
            _require_owners(change, project_id, account_id, len(strategies))
            resource = add_resource(change, account_id, module)
            applet = change.add(
                self.tables.applets,
                Applet(
                    applet_id=change.new_id(),
                    project_id=project_id,
                    resource_id=resource.resource_id,
                    name=_free_name(change, project_id, name),
                    wasm_name=wasm_name,
                    instance_id=change.new_id(),
                    sha256=resource.sha256,
                    isolation=isolation,
                    reuse_events=reuse_events,
                    version=1,
                    cache_mode=cache.mode,
                    cache_prefix=cache.prefix,
                ),
            )
            add_version(change, applet, author_id)
            rules = [add_strategy(change, applet, rule) for rule in strategies]
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
        author_id: int = 0,
    ) -> Deployed:
        """Change an applet; None leaves a field as it is. `strategies` replaces all earlier ones.

        The project's account owns a new module, which becomes the latest version and starts
        the instance. The `versions_kept` latest versions stay, and the running one. Strategies
        whose handler the module does not export are dead, whether given or kept. `author_id` is
        the account that uploaded the module.

        Raises:
            AppletNotFoundError: no such applet.
            AppletNameConflictError: another applet of the project has the name.
            StrategyConflictError: a pair occurs twice.
            QuotaExceededError: the project's account would exceed its quota.
        """
        with self.change() as change:
            applet = change.applet(applet_id)
            if name is not None and name != applet.name:
                refuse_taken_name(change, applet.project_id, name)
            given = {
                "name": name,
                "wasm_name": wasm_name,
                "isolation": isolation,
                "reuse_events": reuse_events,
            }
            fields: dict[str, Any] = {f: value for f, value in given.items() if value is not None}
            if cache is not None:
                fields |= cache.fields()
            if module is None:
                resource = change.resource(applet.resource_id)
                applet = change.update(self.tables.applets, applet, **fields)
            else:
                owner_id = change.project(applet.project_id).account_id
                resource = add_resource(change, owner_id, module)
                applet = _run_module(change, applet, resource, fields, versions_kept, author_id)
            if strategies is None:
                rules = change.now.strategies_of_applet(applet_id)
            else:
                rules = replace_strategies(change, applet, strategies)
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
                resource_id=resource.resource_id,
                sha256=resource.sha256,
                **started(change, applet),
            )
            change.remove_unused_resources(before)
            return Deployed(applet, resource, change.now.strategies_of_applet(applet_id))

    @command
    def remove_applets(self, project_id: int, applet_ids: Sequence[int]) -> int:
        """Remove applets of this project by id, ignoring others; return the number removed."""
        with self.change() as change:
            own = change.in_project(self.tables.applets, project_id, applet_ids)
            for applet in own:
                drop_applet(change, applet)
            return len(own)

    @command
    def remove_applet(self, applet_id: int) -> Applet:
        """Remove an applet, its instance and its strategies; the resource remains.

        Raises:
            AppletNotFoundError: no such applet.
        """
        with self.change() as change:
            applet = change.applet(applet_id)
            drop_applet(change, applet)
            return applet


def add_version(change: Change, applet: Applet, author_id: int) -> None:
    """Keep the module that an applet runs as the version with its current number."""
    change.add(
        change.tables.applet_versions,
        AppletVersion(
            version_id=change.new_id(),
            applet_id=applet.applet_id,
            number=applet.version,
            resource_id=applet.resource_id,
            sha256=applet.sha256,
            wasm_name=applet.wasm_name,
            author_id=author_id,
        ),
    )


def refuse_taken_name(change: Change, project_id: int, name: str) -> None:
    """Raise `AppletNameConflictError` if the project has an applet of that name."""
    if _is_taken(change, project_id, name):
        raise AppletNameConflictError(what=f"applet {name}")


def drop_applet(change: Change, applet: Applet) -> None:
    """Remove an applet, its strategies and its versions.

    Its resources remain, except those that are marked as deleted and not used any more.
    """
    for strategy in change.now.strategies_of_applet(applet.applet_id):
        change.remove(change.tables.strategies, strategy)
    versions = change.now.applet_versions(applet.applet_id)
    for version in versions:
        change.remove(change.tables.applet_versions, version)
    change.remove(change.tables.applets, applet)
    change.remove_unused_resources(applet.resource_id, *(v.resource_id for v in versions))


def _run_module(
    change: Change,
    applet: Applet,
    resource: Resource,
    fields: dict[str, Any],
    versions_kept: int,
    author_id: int,
) -> Applet:
    """Start an applet with a module; a module that it does not run yet becomes a new version."""
    fields |= {"resource_id": resource.resource_id, "sha256": resource.sha256}
    fields |= started(change, applet)
    if resource.resource_id == applet.resource_id:
        return change.update(change.tables.applets, applet, **fields)
    versions = change.now.applet_versions(applet.applet_id)
    fields["version"] = max([applet.version, *(version.number for version in versions)]) + 1
    new = change.update(change.tables.applets, applet, **fields)
    add_version(change, new, author_id)
    _remove_old_versions(change, new, versions_kept)
    change.remove_unused_resources(applet.resource_id)
    return new


def _remove_old_versions(change: Change, applet: Applet, kept: int) -> None:
    versions = change.now.applet_versions(applet.applet_id)
    for version in versions[: max(0, len(versions) - kept)]:
        if version.number != applet.version:
            change.remove(change.tables.applet_versions, version)
            change.remove_unused_resources(version.resource_id)


def _require_owners(change: Change, project_id: int, account_id: int, strategies: int) -> None:
    """Check that both owners of a new applet exist, and that the project's has room for it."""
    owner_id = change.project(project_id).account_id
    change.account(account_id)
    change.require_quota(owner_id, quotas.APPLETS)
    change.require_quota(owner_id, quotas.STRATEGIES, strategies)


def _free_name(change: Change, project_id: int, name: str) -> str:
    """Return `name`, with the first of the suffixes `_2`, `_3`, ... if it is taken."""
    free, number = name, 1
    while _is_taken(change, project_id, free):
        number += 1
        suffix = f"_{number}"
        free = name[: NAME_LIMIT - len(suffix)] + suffix
    return free


def _is_taken(change: Change, project_id: int, name: str) -> bool:
    key = to_key(project_id) + text_key(name)
    return change.tables.applets.find(change.txn, "applet_names", key) is not None
