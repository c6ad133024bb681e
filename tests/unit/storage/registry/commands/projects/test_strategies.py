"""Commands on strategies."""

from __future__ import annotations

import pytest

from fieldbrook.core.errors import AppletNotFoundError, StrategyConflictError, StrategyNotFoundError
from tests.unit.storage.registry.harness import Registry


def test_strategies_are_created_all_or_none(registry: Registry) -> None:
    project = registry.project()
    applet_id = registry.applet(project, strategies=()).applet.applet_id
    good, bad = [applet_id, "MINT", "mint"], [5, "BURN", "burn"]
    with pytest.raises(AppletNotFoundError):
        registry("create_strategies", project_id=project.project_id, strategies=[good, bad])
    assert registry.reader.strategies(project.project_id) == []
    made = registry("create_strategies", project_id=project.project_id, strategies=[good])
    assert registry.reader.strategies(project.project_id) == made
    with pytest.raises(StrategyConflictError, match=r"\[app: log\] \[type: MINT\] \[hdl: mint\]"):
        registry("create_strategies", project_id=project.project_id, strategies=[good])


def test_strategies_are_listed_in_the_order_of_their_creation(registry: Registry) -> None:
    project = registry.project()
    applet_id = registry.applet(project, strategies=()).applet.applet_id
    types = ["Z", "A", "M"]
    for event_type in types:
        registry.now_ms -= 1_000
        rule = [applet_id, event_type, "start"]
        registry("create_strategies", project_id=project.project_id, strategies=[rule])
    assert [s.event_type for s in registry.reader.strategies(project.project_id)] == types


def test_a_strategy_belongs_to_an_applet_of_its_project(registry: Registry) -> None:
    project, other = registry.project("one"), registry.project("two")
    mine, foreign = registry.applet(project), registry.applet(other)
    rule = [foreign.applet.applet_id, "A", "start"]
    with pytest.raises(AppletNotFoundError):
        registry("create_strategies", project_id=project.project_id, strategies=[rule])
    with pytest.raises(AppletNotFoundError):
        registry(
            "update_strategy",
            strategy_id=mine.strategies[0].strategy_id,
            applet_id=foreign.applet.applet_id,
            event_type="A",
            handler="start",
        )


def test_a_strategy_is_changed_within_the_same_rules(registry: Registry) -> None:
    project = registry.project()
    made = registry.applet(project, strategies=(("A", "start"), ("B", "start")))
    first = made.strategies[0]
    change = {"strategy_id": first.strategy_id, "applet_id": first.applet_id}
    changed = registry("update_strategy", event_type="C", handler="mint", **change)
    assert (changed.event_type, changed.handler) == ("C", "mint")
    assert registry.reader.strategy(first.strategy_id) == changed
    version = registry.reader.version()
    assert registry("update_strategy", event_type="C", handler="mint", **change) == changed
    assert registry.reader.version() == version
    with pytest.raises(StrategyConflictError):
        registry("update_strategy", event_type="B", handler="start", **change)
    dead = registry("update_strategy", event_type="B", handler="none", **change)
    assert registry.reader.strategy(first.strategy_id) == dead
    with pytest.raises(StrategyNotFoundError):
        registry(
            "update_strategy",
            strategy_id=5,
            applet_id=first.applet_id,
            event_type="A",
            handler="start",
        )


def test_strategies_of_other_projects_are_not_removed(registry: Registry) -> None:
    project, other = registry.project("one"), registry.project("two")
    mine = registry.applet(project).strategies[0].strategy_id
    foreign = registry.applet(other).strategies[0].strategy_id
    remove = {"project_id": project.project_id, "strategy_ids": [mine, mine, foreign, 5]}
    assert registry("remove_strategies", **remove) == 1
    assert registry.reader.strategies(project.project_id) == []
    assert registry.reader.strategy(foreign) is not None
    version = registry.reader.version()
    assert registry("remove_strategies", **remove) == 0
    assert registry.reader.version() == version
