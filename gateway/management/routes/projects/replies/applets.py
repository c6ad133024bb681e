"""Answers about applets, their instances and their stored versions.

The state of an instance has two keys, one per generation of clients: `instanceState` and `state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.model import (
    PER_INSTANCE,
    REMOVED,
    Account,
    Applet,
    AppletVersion,
    Resource,
    Strategy,
)
from fieldbrook.gateway.management.framework import warnings
from fieldbrook.gateway.management.framework.answers import Page, Timed, times
from fieldbrook.gateway.management.framework.binding import json_key
from fieldbrook.gateway.management.routes.projects.replies.resources import (
    ResourceReply,
    resource_reply,
)
from fieldbrook.gateway.management.routes.projects.replies.strategies import (
    StrategyReply,
    strategy_reply,
)


class InstanceReply(Timed, frozen=True):
    """An instance."""

    instance_id: str
    applet_id: str
    instance_state: str
    state: str


class CacheReply(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an applet's key-value store."""

    mode: str
    prefix: str | UnsetType = UNSET


class PlainApplet(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """An applet without its instance, resource and strategies."""

    applet_id: str
    project_id: str
    resource_id: str
    name: str
    wasm_name: str
    isolation: str
    reuse_events: int | UnsetType = UNSET
    version: int
    wasm_cache: CacheReply
    created_at: str
    updated_at: str


class AppletReply(PlainApplet, frozen=True, kw_only=True):
    """An applet with its instance, resource and strategies."""

    instance: InstanceReply | None
    resource: ResourceReply
    strategies: list[StrategyReply]
    warnings: list[str] | UnsetType = UNSET


class AppletPage(Page[AppletReply], frozen=True):
    """A page of applets; `total` counts all matching ones."""


class ListedApplet(PlainApplet, frozen=True, kw_only=True):
    """An applet with its instances: one, or none after it was removed."""

    instances: list[InstanceReply]


class AppletList(Page[ListedApplet], frozen=True):
    """The applets of a project; `hints` is the early clients' name of `total`."""

    hints: int


class FoundApplet(ListedApplet, frozen=True, kw_only=True):
    """One applet with its instances and strategies."""

    strategies: list[StrategyReply]


class AppletRow(PlainApplet, frozen=True, kw_only=True):
    """An applet in the row of its project, with the keys of both generations of clients.

    The early keys are `appletName` and `instanceState`; the later ones are `name`, `state`,
    `path` and `md5`.
    """

    applet_name: str
    path: str | UnsetType = UNSET
    md5: str | UnsetType = UNSET
    instance_id: str | UnsetType = UNSET
    instance_state: str | UnsetType = UNSET
    instance_state_vm: str | UnsetType = msgspec.field(default=UNSET, name="instanceStateVM")
    state: str | UnsetType = UNSET


class VersionReply(Timed, frozen=True):
    """A stored version of an applet; `current` is the one that runs.

    `sha256` and `size` (bytes) are those of the module as it was uploaded. `author` is the account
    that uploaded it, absent if that was removed or the version is from an older node.
    """

    version: int
    applet_id: str
    current: bool
    wasm_name: str
    resource_id: str
    md5: str
    sha256: str
    size: int
    handlers: list[str]
    author: str | UnsetType = UNSET


class VersionPage(Page[VersionReply], frozen=True):
    """All stored versions of an applet, latest first."""


def instance_reply(applet: Applet) -> InstanceReply:
    """Return the instance of an applet."""
    return InstanceReply(
        instance_id=str(applet.instance_id),
        applet_id=str(applet.applet_id),
        instance_state=applet.state,
        state=applet.state,
        **times(applet),
    )


def applet_reply(
    applet: Applet,
    resource: Resource,
    strategies: Sequence[Strategy],
    other_warnings: Iterable[str] = (),
) -> AppletReply:
    """An applet with its instance, resource and strategies.

    The warnings about dead strategies come before `other_warnings`.
    """
    dead = warnings.dead_strategies(strategies, {applet.applet_id: resource})
    return AppletReply(
        **_plain(applet),
        instance=None if applet.state == REMOVED else instance_reply(applet),
        resource=resource_reply(resource),
        strategies=[strategy_reply(strategy, resource) for strategy in strategies],
        warnings=warnings.listed([*dead, *other_warnings]),
    )


def listed_applet(applet: Applet) -> ListedApplet:
    """An applet with its instances."""
    return ListedApplet(**_plain(applet), instances=_instances(applet))


def found_applet(
    applet: Applet, resource: Resource | None, strategies: Iterable[Strategy]
) -> FoundApplet:
    """An applet with its instances and strategies; `resource` is its module."""
    return FoundApplet(
        **_plain(applet),
        instances=_instances(applet),
        strategies=[strategy_reply(strategy, resource) for strategy in strategies],
    )


def applet_row(applet: Applet, resource: Resource | None) -> AppletRow:
    """An applet in the row of its project."""
    state = UNSET if applet.state == REMOVED else applet.state
    return AppletRow(
        **_plain(applet),
        applet_name=applet.name,
        path=UNSET if resource is None else resource.sha256,
        md5=UNSET if resource is None else resource.md5,
        instance_id=UNSET if applet.state == REMOVED else str(applet.instance_id),
        instance_state=state,
        instance_state_vm=state,
        state=state,
    )


def version_reply(
    version: AppletVersion, resource: Resource, author: Account | None, applet: Applet
) -> VersionReply:
    """Return a stored version of an applet; `resource` is its module."""
    return VersionReply(
        version=version.number,
        applet_id=str(version.applet_id),
        current=version.number == applet.version,
        wasm_name=version.wasm_name,
        resource_id=str(version.resource_id),
        md5=resource.md5,
        sha256=resource.sha256,
        size=resource.size,
        handlers=list(resource.handlers),
        author=UNSET if author is None else author.username,
        **times(version),
    )


def _plain(applet: Applet) -> dict[str, Any]:
    """The fields of `PlainApplet`."""
    return {
        "applet_id": str(applet.applet_id),
        "project_id": str(applet.project_id),
        "resource_id": str(applet.resource_id),
        "name": applet.name,
        "wasm_name": applet.wasm_name,
        "isolation": applet.isolation,
        "reuse_events": applet.reuse_events if applet.isolation == PER_INSTANCE else UNSET,
        "version": applet.version,
        "wasm_cache": CacheReply(mode=applet.cache_mode, prefix=applet.cache_prefix or UNSET),
        **times(applet),
    }


def _instances(applet: Applet) -> list[InstanceReply]:
    return [] if applet.state == REMOVED else [instance_reply(applet)]
