"""Strategies of a project: which event type runs which handler."""

from __future__ import annotations

from typing import Any

import msgspec

from fieldbrook.gateway.management.binding import Paging, Sfid, Text
from fieldbrook.gateway.management.ownership import own_applet_in, own_project, own_strategy
from fieldbrook.gateway.management.route import Auth, Call, Route
from fieldbrook.gateway.management.views import Json, page, strategy_json, times_json
from fieldbrook.model import Strategy


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy as a client states it."""

    applet_id: Sfid = msgspec.field(name="appletID")
    event_type: Text = msgspec.field(name="eventType")
    handler: Text


class CreateStrategies(msgspec.Struct, frozen=True, kw_only=True):
    """New strategies, all of them or none."""

    strategies: list[Rule]


class ListStrategies(Paging, frozen=True, kw_only=True):
    """Filters: strategies' ids, applets and event types."""

    ids: list[Sfid] = msgspec.field(default_factory=list, name="id")
    strategy_ids: list[Sfid] = msgspec.field(default_factory=list, name="strategyID")
    applet_ids: list[Sfid] = msgspec.field(default_factory=list, name="appletID")
    event_types: list[str] = msgspec.field(default_factory=list, name="eventType")


class RemoveStrategies(msgspec.Struct, frozen=True, kw_only=True):
    """Which strategies to remove."""

    strategy_ids: list[Sfid] = msgspec.field(name="strategyID")


async def create_strategies(call: Call[CreateStrategies, None]) -> None:
    """Create strategies."""
    project = own_project(call)
    await call.context.registry.call(
        "create_strategies",
        project_id=project.project_id,
        strategies=[(r.applet_id, r.event_type, r.handler) for r in call.body.strategies],
    )


async def list_strategies(call: Call[None, ListStrategies]) -> Json:
    """The strategies of a project, grouped by applet; `total` counts strategies."""
    project = own_project(call)
    with call.context.reader.snapshot() as registry:
        names = {a.applet_id: a.name for a in registry.applets(project.project_id)}
        found = [s for s in registry.strategies(project.project_id) if _fits(s, call.query)]
    groups: dict[int, list[Strategy]] = {}
    for strategy in page(found, call.query):
        groups.setdefault(strategy.applet_id, []).append(strategy)
    return {
        "data": [
            {
                "projectID": str(project.project_id),
                "strategies": [_row(s, names[applet_id]) for s in strategies],
                **times_json(strategies),
            }
            for applet_id, strategies in groups.items()
        ],
        "total": len(found),
    }


async def get_strategy(call: Call[None, None]) -> Json:
    """One strategy."""
    return strategy_json(own_strategy(call))


async def update_strategy(call: Call[Rule, None]) -> None:
    """Change a strategy, also to another applet of its project."""
    strategy = own_strategy(call)
    rule = call.body
    own_applet_in(call, own_project(call), rule.applet_id)
    await call.context.registry.call(
        "update_strategy",
        strategy_id=strategy.strategy_id,
        applet_id=rule.applet_id,
        event_type=rule.event_type,
        handler=rule.handler,
    )


async def remove_strategies(call: Call[None, RemoveStrategies]) -> None:
    """Remove strategies; ids the project does not have are passed over."""
    await call.context.registry.call(
        "remove_strategies",
        project_id=own_project(call).project_id,
        strategy_ids=call.query.strategy_ids,
    )


def _fits(strategy: Strategy, query: ListStrategies) -> bool:
    ids = {*query.ids, *query.strategy_ids}
    return (
        (not ids or strategy.strategy_id in ids)
        and (not query.applet_ids or strategy.applet_id in query.applet_ids)
        and (not query.event_types or strategy.event_type in query.event_types)
    )


def _row(strategy: Strategy, applet_name: str) -> Json:
    return {
        "strategyID": str(strategy.strategy_id),
        "appletID": str(strategy.applet_id),
        "appletName": applet_name,
        "eventType": strategy.event_type,
        "handler": strategy.handler,
    }


_ALL, _ONE = "/strategy/{projectName}", "/strategy/{projectName}/{strategyID}"
ROUTES: tuple[Route[Any, Any], ...] = (
    Route("POST", _ALL, "CreateStrategy", Auth.ACCOUNT, create_strategies, body=CreateStrategies),
    Route("GET", _ALL, "ListStrategy", Auth.ACCOUNT, list_strategies, query=ListStrategies),
    Route(
        "DELETE", _ALL, "RemoveStrategy", Auth.ACCOUNT, remove_strategies, query=RemoveStrategies
    ),
    Route("GET", _ONE, "GetStrategy", Auth.ACCOUNT, get_strategy),
    Route("PUT", _ONE, "UpdateStrategy", Auth.ACCOUNT, update_strategy, body=Rule),
)
