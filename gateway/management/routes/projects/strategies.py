"""Strategies of a project: each maps an event type to a handler.

The early routes handle several strategies per request, the later ones a single one. A strategy
is dead if the module does not export its handler. Such a strategy is still accepted, as in the
original interface, and is marked in every answer. Its events become dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from fieldbrook.core.errors import StrategyNotFoundError
from fieldbrook.core.model import Project, Resource, Strategy
from fieldbrook.gateway.management.framework import warnings
from fieldbrook.gateway.management.framework.answers import page
from fieldbrook.gateway.management.framework.binding import Paging, Sfid, Text
from fieldbrook.gateway.management.framework.ownership import (
    own_project,
    own_row,
)
from fieldbrook.gateway.management.framework.route import Call, NoContent, Route
from fieldbrook.gateway.management.routes.projects.replies.strategies import (
    StrategyGroups,
    StrategyPage,
    StrategyReply,
    strategy_group,
    strategy_reply,
)
from fieldbrook.storage.registry.reader import RegistrySnapshot


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a strategy in a request."""

    applet_id: Sfid = msgspec.field(name="appletID")
    event_type: Text = msgspec.field(name="eventType")
    handler: Text


class StateStrategy(Rule, frozen=True, kw_only=True):
    """The fields of a strategy, with the later generation's flag for collecting metrics."""

    auto_collect_metric: bool | None = msgspec.field(default=None, name="autoCollectMetric")


class CreateStrategies(msgspec.Struct, frozen=True, kw_only=True):
    """New strategies; either all of them are created or none."""

    strategies: list[Rule]


class ListStrategies(Paging, frozen=True, kw_only=True):
    """Filters: ids of strategies, ids of applets, and event types."""

    ids: list[Sfid] = msgspec.field(default_factory=list, name="id")
    strategy_ids: list[Sfid] = msgspec.field(default_factory=list, name="strategyID")
    applet_ids: list[Sfid] = msgspec.field(default_factory=list, name="appletID")
    event_types: list[str] = msgspec.field(default_factory=list, name="eventType")


class RemoveStrategies(msgspec.Struct, frozen=True, kw_only=True):
    """The strategies to remove."""

    strategy_ids: list[Sfid] = msgspec.field(name="strategyID")


class FilterStrategies(Paging, frozen=True, kw_only=True):
    """Filters of strategies; without a filter, all of the project. Removing ignores `size` and
    `offset`."""

    strategy_ids: list[Sfid] = msgspec.field(default_factory=list, name="strategyID")
    applet_ids: list[Sfid] = msgspec.field(default_factory=list, name="appletID")
    event_types: list[str] = msgspec.field(default_factory=list, name="eventType")
    handlers: list[str] = msgspec.field(default_factory=list, name="handler")

    def matches(self, strategy: Strategy) -> bool:
        """Whether a strategy passes every filter."""
        return (
            (not self.strategy_ids or strategy.strategy_id in self.strategy_ids)
            and (not self.applet_ids or strategy.applet_id in self.applet_ids)
            and (not self.event_types or strategy.event_type in self.event_types)
            and (not self.handlers or strategy.handler in self.handlers)
        )


# ---------------------------------------------------------------- early routes


async def create_strategies(call: Call[CreateStrategies, None]) -> NoContent:
    """Create strategies."""
    project = own_project(call)
    created: list[Strategy] = await call.context.registry.call(
        "create_strategies",
        project_id=project.project_id,
        strategies=[(r.applet_id, r.event_type, r.handler) for r in call.body.strategies],
    )
    return _done(call, created)


async def list_strategies(call: Call[None, ListStrategies]) -> StrategyGroups:
    """The strategies of a project, grouped by applet; `total` counts strategies."""
    project = own_project(call)
    query = call.query
    wanted = FilterStrategies(
        strategy_ids=[*query.ids, *query.strategy_ids],
        applet_ids=query.applet_ids,
        event_types=query.event_types,
    )
    with call.context.reader.snapshot() as registry:
        names = {a.applet_id: a.name for a in registry.applets(project.project_id)}
        found = [s for s in registry.strategies(project.project_id) if wanted.matches(s)]
        rows = page(found, query, by_creation=True)
        modules = modules_by_applet(registry, rows)
    groups: dict[int, list[Strategy]] = {}
    for strategy in rows:
        groups.setdefault(strategy.applet_id, []).append(strategy)
    data = [
        strategy_group(strategies, names[applet_id], modules.get(applet_id))
        for applet_id, strategies in groups.items()
    ]
    return StrategyGroups(data, len(found))


async def get_strategy(call: Call[None, None]) -> StrategyReply:
    """One strategy."""
    return _one(call, _own_strategy(call))


async def update_strategy(call: Call[StateStrategy, None]) -> NoContent:
    """Change a strategy; it may also move to another applet of its project."""
    strategy, rule = _own_strategy(call), call.body
    changed: Strategy = await call.context.registry.call(
        "update_strategy",
        strategy_id=strategy.strategy_id,
        applet_id=rule.applet_id,
        event_type=rule.event_type,
        handler=rule.handler,
        auto_collect_metric=rule.auto_collect_metric,
    )
    return _done(call, [changed])


async def remove_strategies(call: Call[None, RemoveStrategies]) -> None:
    """Remove strategies; ids that the project does not have are ignored."""
    await _remove(call, own_project(call), call.query.strategy_ids)


# ---------------------------------------------------------------- later routes


async def create_strategy(call: Call[StateStrategy, None]) -> StrategyReply:
    """Create one strategy."""
    rule = call.body
    strategy: Strategy = await call.context.registry.call(
        "create_strategy",
        project_id=own_project(call).project_id,
        applet_id=rule.applet_id,
        event_type=rule.event_type,
        handler=rule.handler,
        auto_collect_metric=rule.auto_collect_metric,
    )
    return _one(call, strategy)


async def page_strategies(
    call: Call[None, FilterStrategies],
) -> StrategyPage:
    """The strategies of a project, one row each."""
    found = _found(call, own_project(call), call.query)
    with call.context.reader.snapshot() as registry:
        rows = page(found, call.query)
        modules = modules_by_applet(registry, rows)
    return StrategyPage([strategy_reply(s, modules.get(s.applet_id)) for s in rows], len(found))


async def remove_strategy(call: Call[None, None]) -> None:
    """Remove a strategy."""
    strategy = _own_strategy(call)
    await call.context.registry.call(
        "remove_strategies",
        project_id=strategy.project_id,
        strategy_ids=[strategy.strategy_id],
    )


async def remove_fitting_strategies(call: Call[None, FilterStrategies]) -> None:
    """Remove the strategies that match the filters; without a filter, all of the project."""
    project = own_project(call)
    found = _found(call, project, call.query)
    await _remove(call, project, [strategy.strategy_id for strategy in found])


# ---------------------------------------------------------------- what both share


def _own_strategy(call: Call[Any, Any]) -> Strategy:
    find = call.context.reader.strategy
    return own_row(
        call, "strategyID", find, lambda row_id: StrategyNotFoundError(what=f"strategy {row_id}")
    )


def _done(call: Call[Any, Any], strategies: Sequence[Strategy]) -> NoContent:
    with call.context.reader.snapshot() as registry:
        modules = modules_by_applet(registry, strategies)
    return NoContent(list(warnings.dead_strategies(strategies, modules)))


def _one(call: Call[Any, Any], strategy: Strategy) -> StrategyReply:
    with call.context.reader.snapshot() as registry:
        modules = modules_by_applet(registry, [strategy])
    return strategy_reply(strategy, modules.get(strategy.applet_id))


def modules_by_applet(
    registry: RegistrySnapshot, strategies: Iterable[Strategy]
) -> dict[int, Resource]:
    """Return the modules of the strategies' applets, by applet id."""
    found = {}
    for applet_id in {strategy.applet_id for strategy in strategies}:
        applet = registry.applet(applet_id)
        resource = registry.resource(applet.resource_id) if applet is not None else None
        if resource is not None:
            found[applet_id] = resource
    return found


async def _remove(call: Call[Any, Any], project: Project, strategy_ids: list[Any]) -> None:
    await call.context.registry.call(
        "remove_strategies", project_id=project.project_id, strategy_ids=strategy_ids
    )


def _found(call: Call[Any, Any], project: Project, wanted: FilterStrategies) -> list[Strategy]:
    return [s for s in call.context.reader.strategies(project.project_id) if wanted.matches(s)]


_ALL, _ONE = "/strategy/{projectName}", "/strategy/{projectName}/{strategyID}"
_X, _DATA = "/strategy/x/{projectName}", "/strategy/data/{strategyID}"
ROUTES: tuple[Route, ...] = (
    Route("POST", _ALL, "CreateStrategy", create_strategies),
    Route("GET", _ALL, "ListStrategy", list_strategies),
    Route("DELETE", _ALL, "RemoveStrategy", remove_strategies),
    Route("GET", _ONE, "GetStrategy", get_strategy),
    Route("PUT", _ONE, "UpdateStrategy", update_strategy),
    Route("POST", _X, "CreateStrategy", create_strategy),
    Route("GET", f"{_X}/datalist", "ListStrategy", page_strategies),
    Route("DELETE", _X, "BatchRemoveStrategy", remove_fitting_strategies),
    Route("PUT", "/strategy/{strategyID}", "UpdateStrategy", update_strategy),
    Route("GET", _DATA, "GetStrategy", get_strategy),
    Route("DELETE", _DATA, "RemoveStrategy", remove_strategy),
)
