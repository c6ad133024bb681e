"""Answers about strategies, in the forms of both generations of clients."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.model import Resource, Strategy
from fieldbrook.gateway.management.framework import warnings
from fieldbrook.gateway.management.framework.answers import Page, Timed, times
from fieldbrook.gateway.management.framework.binding import json_key


class StrategyReply(Timed, frozen=True):
    """A strategy; a dead one names a handler that the module of its applet does not export."""

    strategy_id: str
    project_id: str
    applet_id: str
    event_type: str
    handler: str
    auto_collect_metric: bool
    dead: bool
    warnings: list[str] | UnsetType = UNSET


class StrategyPage(Page[StrategyReply], frozen=True):
    """A page of strategies; `total` counts all matching ones."""


class StrategyRow(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A strategy in the list of the early interface; `warnings` say why one is dead."""

    strategy_id: str
    applet_id: str
    applet_name: str
    event_type: str
    handler: str
    dead: bool
    warnings: list[str] | UnsetType = UNSET


class StrategyGroup(Timed, frozen=True):
    """The strategies of one applet."""

    project_id: str
    strategies: list[StrategyRow]


class StrategyGroups(Page[StrategyGroup], frozen=True):
    """The strategies of a project by applet; `total` counts strategies."""


def strategy_reply(strategy: Strategy, resource: Resource | None) -> StrategyReply:
    """One strategy.

    Args:
        resource: the module of the strategy's applet; it decides whether the strategy is dead.
    """
    why = warnings.dead_strategy(strategy, resource)
    return StrategyReply(
        strategy_id=str(strategy.strategy_id),
        project_id=str(strategy.project_id),
        applet_id=str(strategy.applet_id),
        event_type=strategy.event_type,
        handler=strategy.handler,
        auto_collect_metric=bool(strategy.auto_collect_metric),
        dead=bool(why),
        warnings=warnings.listed(why),
        **times(strategy),
    )


def strategy_group(
    strategies: Sequence[Strategy], applet_name: str, resource: Resource | None
) -> StrategyGroup:
    """The strategies of one applet, at least one; `resource` is the applet's module."""
    return StrategyGroup(
        project_id=str(strategies[0].project_id),
        strategies=[_row(strategy, applet_name, resource) for strategy in strategies],
        **times(*strategies),
    )


def _row(strategy: Strategy, applet_name: str, resource: Resource | None) -> StrategyRow:
    why = warnings.dead_strategy(strategy, resource)
    return StrategyRow(
        strategy_id=str(strategy.strategy_id),
        applet_id=str(strategy.applet_id),
        applet_name=applet_name,
        event_type=strategy.event_type,
        handler=strategy.handler,
        dead=bool(why),
        warnings=warnings.listed(why),
    )
