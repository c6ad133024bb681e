"""Strategies: commands that create, change and remove them."""

from __future__ import annotations

from collections.abc import Sequence

from fieldbrook.core import quotas
from fieldbrook.core.errors import StrategyConflictError, StrategyNotFoundError
from fieldbrook.core.model import Applet, Strategy
from fieldbrook.storage.lmdb.ids import to_key
from fieldbrook.storage.lmdb.table import text_key
from fieldbrook.storage.registry.commands.change import Change, Commands, command


def add_strategy(
    change: Change,
    applet: Applet,
    rule: tuple[str, str],
    auto_collect_metric: bool | None = None,
) -> Strategy:
    """Add a strategy of an applet within a change; `rule` is an event type and a handler.

    Raises:
        StrategyConflictError: the applet has such a strategy.
    """
    event_type, handler = rule
    if _find(change, applet, event_type, handler) is not None:
        raise _conflict(change, applet, event_type, handler)
    return change.add(
        change.tables.strategies,
        Strategy(
            strategy_id=change.new_id(),
            project_id=applet.project_id,
            applet_id=applet.applet_id,
            event_type=event_type,
            handler=handler,
            auto_collect_metric=auto_collect_metric,
        ),
    )


def replace_strategies(
    change: Change, applet: Applet, rules: Sequence[tuple[str, str]]
) -> list[Strategy]:
    """Replace all strategies of an applet within a change.

    Raises:
        StrategyConflictError: a rule occurs twice.
        QuotaExceededError: the project's account would exceed its quota.
    """
    old = change.now.strategies_of_applet(applet.applet_id)
    for strategy in old:
        change.remove(change.tables.strategies, strategy)
    # The removed strategies no longer count. An account beyond its quota may still replace
    # strategies by the same number or fewer.
    if len(rules) > len(old):
        owner_id = change.project(applet.project_id).account_id
        change.require_quota(owner_id, quotas.STRATEGIES, len(rules))
    return [add_strategy(change, applet, rule) for rule in rules]


class StrategyCommands(Commands):
    """Commands on strategies."""

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
            change.require_quota(owner_id, quotas.STRATEGIES, len(strategies))
            return [
                add_strategy(change, change.applet_in(project_id, applet_id), (event_type, handler))
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
            change.require_quota(owner_id, quotas.STRATEGIES)
            return add_strategy(change, applet, (event_type, handler), auto_collect_metric)

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
            same = _find(change, applet, event_type, handler)
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
            own = change.in_project(self.tables.strategies, project_id, strategy_ids)
            for strategy in own:
                change.remove(self.tables.strategies, strategy)
            return len(own)


def _find(change: Change, applet: Applet, event_type: str, handler: str) -> Strategy | None:
    key = to_key(applet.applet_id) + text_key(event_type, handler)
    return change.tables.strategies.find(change.txn, "strategy_rules", key)


def _conflict(
    change: Change, applet: Applet, event_type: str, handler: str
) -> StrategyConflictError:
    return StrategyConflictError(
        project=change.project(applet.project_id).name,
        applet=applet.name,
        event_type=event_type,
        handler=handler,
    )
