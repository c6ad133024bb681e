"""Applets: uploaded modules, their strategies, and their stored versions for a rollback."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec

from fieldbrook.core.errors import BadRequestError, FieldError, InstanceNotFoundError
from fieldbrook.core.model import (
    DEFAULT_EVENT_TYPE,
    DEFAULT_HANDLER,
    REMOVED,
    REUSE_EVENTS,
    REUSE_EVENTS_LIMIT,
    Applet,
)
from fieldbrook.gateway.management.framework import warnings
from fieldbrook.gateway.management.framework.answers import page
from fieldbrook.gateway.management.framework.binding import (
    MISSING,
    Paging,
    Sfid,
    Text,
    bind_body,
)
from fieldbrook.gateway.management.framework.ownership import own_applet, own_project
from fieldbrook.gateway.management.framework.route import Call, NoContent, Route
from fieldbrook.gateway.management.routes.projects.replies.applets import (
    AppletList,
    AppletPage,
    AppletReply,
    FoundApplet,
    VersionPage,
    applet_reply,
    found_applet,
    listed_applet,
    version_reply,
)
from fieldbrook.gateway.management.routes.projects.uploads import compiled
from fieldbrook.storage.registry.service import Deployed

Isolation = Literal["EVENT", "BATCH", "INSTANCE"]
ReuseEvents = Annotated[int, msgspec.Meta(ge=1, le=REUSE_EVENTS_LIMIT)]


class RuleDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy in the upload of an applet."""

    event_type: Text = msgspec.field(name="eventType")
    handler: Text


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """The key-value store of an applet. Applets of a project with the same prefix share their
    pairs. The pairs are on disk in every mode."""

    mode: Literal["MEMORY", "REDIS"] = "MEMORY"
    prefix: Text = ""

    def wire(self) -> tuple[str, str]:
        """Return mode and prefix in the form of the registry's commands."""
        return self.mode, self.prefix


class AppletInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`info` of a new applet. Without strategies the applet gets `DEFAULT` -> `start`, or none if
    its module does not export that handler."""

    applet_name: Text = msgspec.field(name="appletName")
    wasm_name: Text = msgspec.field(name="wasmName", default="")
    wasm_md5: Text = msgspec.field(name="wasmMd5", default="")
    wasm_cache: Cache | None = msgspec.field(name="wasmCache", default=None)
    strategies: list[RuleDraft] = msgspec.field(default_factory=list)
    isolation: Isolation = "EVENT"
    reuse_events: ReuseEvents = msgspec.field(default=REUSE_EVENTS, name="reuseEvents")


class AppletChange(msgspec.Struct, frozen=True, kw_only=True):
    """`info` of a changed applet; `strategies` replace the existing ones."""

    applet_name: Text = msgspec.field(name="appletName", default="")
    wasm_name: Text = msgspec.field(name="wasmName", default="")
    wasm_md5: Text = msgspec.field(name="wasmMd5", default="")
    wasm_cache: Cache | None = msgspec.field(name="wasmCache", default=None)
    strategies: list[RuleDraft] = msgspec.field(default_factory=list)
    isolation: Isolation | None = None
    reuse_events: ReuseEvents | None = msgspec.field(default=None, name="reuseEvents")


class ListApplets(Paging, frozen=True, kw_only=True):
    """Filters of applets: ids, names, a part of the name, or its end (`lName`). Without a filter,
    all applets of the project. Removing ignores `size` and `offset`."""

    ids: list[Sfid] = msgspec.field(default_factory=list, name="id")
    applet_ids: list[Sfid] = msgspec.field(default_factory=list, name="appletID")
    names: list[str] = msgspec.field(default_factory=list)
    name: str = ""
    end: str = msgspec.field(default="", name="lName")

    def matches(self, applet: Applet) -> bool:
        """Return whether an applet passes every filter."""
        ids = {*self.ids, *self.applet_ids}
        return (
            (not ids or applet.applet_id in ids)
            and (not self.names or applet.name in self.names)
            and self.name in applet.name
            and applet.name.endswith(self.end)
        )


async def create_applet(call: Call[AppletInfo, None]) -> AppletReply:
    """Upload a module as a new applet of a project and start it. If the project has an applet
    with this name, the new name gets a suffix."""
    project, info = own_project(call), call.body
    if call.form.file is None:
        raise BadRequestError(FieldError("file", MISSING, "body"))
    module = await compiled(call, info.wasm_md5, project.account_id)
    deployed = await call.context.registry.call(
        "create_applet",
        project_id=project.project_id,
        account_id=project.account_id,
        name=info.applet_name,
        wasm_name=info.wasm_name or module.filename,
        filename=module.filename,
        sha256=module.sha256,
        md5=module.md5,
        size=module.size,
        handlers=module.handlers,
        strategies=_pairs(info.strategies) or _default_rules(module.handlers),
        isolation=info.isolation,
        reuse_events=info.reuse_events,
        cache=info.wasm_cache and info.wasm_cache.wire(),
        author_id=call.account.account_id,
        compiled_size=module.compiled_size,
    )
    none = [] if deployed.strategies else warnings.no_strategy(deployed.resource)
    return _reply(
        deployed, [*warnings.renamed_applet(info.applet_name, deployed.applet.name), *none]
    )


async def update_applet(call: Call[AppletChange, None]) -> AppletReply:
    """Give an applet another module, name or strategies. A new module takes over between two
    batches of events; no event is lost or fails."""
    applet = own_applet(call)
    return _reply(await _update(call, applet, call.body.wasm_cache))


async def update_and_deploy(call: Call[AppletChange, None]) -> NoContent:
    """Update an applet as `UpdateApplet` does and start its instance; answered as in the seed
    era, without a body."""
    applet = own_applet(call)
    if call.id("instanceID") != applet.instance_id or applet.state == REMOVED:
        raise InstanceNotFoundError(instance=call.id("instanceID"))
    given = call.form.cache
    cache = call.body.wasm_cache if given is None else bind_body(given, Cache, "cache")
    deployed = await _update(call, applet, cache)
    await call.context.registry.call("create_instance", applet_id=applet.applet_id)
    modules = {applet.applet_id: deployed.resource}
    return NoContent(list(warnings.dead_strategies(deployed.strategies, modules)))


async def list_applets(call: Call[None, ListApplets]) -> AppletList:
    """The applets of a project; `hints` is the early clients' name of `total`."""
    found = _found(call)
    data = [listed_applet(applet) for applet in page(found, call.query)]
    return AppletList(data, len(found), hints=len(found))


async def page_applets(call: Call[None, ListApplets]) -> AppletPage:
    """The applets of a project with their resources and strategies."""
    found = _found(call)
    with call.context.reader.snapshot() as registry:
        data = []
        for applet in page(found, call.query):
            resource = registry.resource(applet.resource_id)
            strategies = registry.strategies_of_applet(applet.applet_id)
            if resource is not None:
                data.append(applet_reply(applet, resource, strategies))
    return AppletPage(data, len(found))


async def get_applet(call: Call[None, None]) -> FoundApplet:
    """One applet with its instance and strategies."""
    applet = own_applet(call)
    with call.context.reader.snapshot() as registry:
        resource = registry.resource(applet.resource_id)
        strategies = registry.strategies_of_applet(applet.applet_id)
    return found_applet(applet, resource, strategies)


async def remove_applet(call: Call[None, None]) -> None:
    """Remove an applet, its instance, its versions and its strategies."""
    applet = own_applet(call)
    await call.context.registry.call("remove_applet", applet_id=applet.applet_id)


async def remove_applets(call: Call[None, ListApplets]) -> None:
    """Remove the applets that match the filters; without a filter, all of the project."""
    await call.context.registry.call(
        "remove_applets",
        project_id=own_project(call).project_id,
        applet_ids=[applet.applet_id for applet in _found(call)],
    )


async def list_versions(call: Call[None, None]) -> VersionPage:
    """The stored versions of an applet, latest first; each can be run again."""
    applet = own_applet(call)
    with call.context.reader.snapshot() as registry:
        data = [
            version_reply(version, resource, registry.account(version.author_id), applet)
            for version in registry.applet_versions(applet.applet_id)[::-1]
            if (resource := registry.resource(version.resource_id)) is not None
        ]
    return VersionPage(data, len(data))


async def roll_back(call: Call[None, None]) -> AppletReply:
    """Roll an applet back to a stored version; its strategies and key-value pairs stay."""
    applet = own_applet(call)
    deployed = await call.context.registry.call(
        "roll_back_applet", applet_id=applet.applet_id, number=call.id("version")
    )
    return _reply(deployed)


async def _update(call: Call[AppletChange, None], applet: Applet, cache: Cache | None) -> Deployed:
    change = call.body
    if call.form.file is None and call.form.info is None:
        raise BadRequestError(FieldError("info", MISSING, "body"))
    module = None
    if call.form.file is not None:
        project = call.context.reader.project(applet.project_id)
        owner_id = call.account.account_id if project is None else project.account_id
        module = await compiled(call, change.wasm_md5, owner_id)
    deployed: Deployed = await call.context.registry.call(
        "update_applet",
        applet_id=applet.applet_id,
        name=change.applet_name or None,
        wasm_name=change.wasm_name or None,
        module=None if module is None else msgspec.to_builtins(module),
        strategies=_pairs(change.strategies) or None,
        isolation=change.isolation,
        reuse_events=change.reuse_events,
        cache=cache and cache.wire(),
        versions_kept=call.context.applet_versions_kept,
        author_id=call.account.account_id,
    )
    return deployed


def _found(call: Call[None, ListApplets]) -> list[Applet]:
    applets = call.context.reader.applets(own_project(call).project_id)
    return [applet for applet in applets if call.query.matches(applet)]


def _reply(deployed: Deployed, other_warnings: Iterable[str] = ()) -> AppletReply:
    return applet_reply(deployed.applet, deployed.resource, deployed.strategies, other_warnings)


def _default_rules(handlers: Sequence[str]) -> list[tuple[str, str]]:
    return [(DEFAULT_EVENT_TYPE, DEFAULT_HANDLER)] if DEFAULT_HANDLER in handlers else []


def _pairs(drafts: Sequence[RuleDraft]) -> list[tuple[str, str]]:
    return [(draft.event_type, draft.handler) for draft in drafts]


_ALL, _X, _DATA = "/applet/{projectName}", "/applet/x/{projectName}", "/applet/data/{appletID}"
_ONE = "/applet/{appletID}"
ROUTES: tuple[Route, ...] = (
    Route("POST", _ALL, "CreateApplet", create_applet, upload=True),
    Route("GET", _ALL, "ListApplet", list_applets),
    Route("GET", f"{_ALL}/{{appletID}}", "GetApplet", get_applet),
    Route("PUT", _ONE, "UpdateApplet", update_applet, upload=True),
    Route("PUT", f"{_ONE}/{{instanceID}}", "UpdateAndDeploy", update_and_deploy, upload=True),
    Route("DELETE", _ONE, "RemoveApplet", remove_applet),
    Route("POST", _X, "CreateApplet", create_applet, upload=True),
    Route("GET", f"{_X}/datalist", "ListApplet", page_applets),
    Route("DELETE", _X, "BatchRemoveApplet", remove_applets),
    Route("GET", _DATA, "GetApplet", get_applet),
    Route("DELETE", _DATA, "RemoveApplet", remove_applet),
    Route("GET", f"{_DATA}/versions", "ListAppletVersions", list_versions),
    Route("PUT", f"{_DATA}/versions/{{version}}", "RollBackApplet", roll_back),
)
