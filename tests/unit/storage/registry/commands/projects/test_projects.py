"""Commands on projects."""

from __future__ import annotations

import pytest

from fieldbrook.core.errors import (
    AccountNotFoundError,
    ProjectNameConflictError,
    ProjectNotFoundError,
)
from tests.unit.storage.registry.harness import Registry


def test_a_project_name_is_unique_in_the_node(registry: Registry) -> None:
    registry.project("minter")
    other = registry.account("bob")
    with pytest.raises(ProjectNameConflictError, match="minter"):
        registry.project("minter", other.account_id)
    registry.project("Minter", other.account_id)


def test_a_project_needs_an_account(registry: Registry) -> None:
    with pytest.raises(AccountNotFoundError):
        registry.project("minter", 5)


def test_removing_a_project_removes_what_is_in_it_and_nothing_else(registry: Registry) -> None:
    project, other = registry.project("one"), registry.project("two")
    gone, stays = registry.applet(project), registry.applet(other)
    for each in (project, other):
        registry("create_publisher", project_id=each.project_id, name="n", key="k")
    registry("remove_project", project_id=project.project_id)
    reader = registry.reader
    assert reader.project_named("one") is None
    assert reader.applet(gone.applet.applet_id) is None
    assert reader.applet_of_instance(gone.applet.instance_id) is None
    assert reader.strategy(gone.strategies[0].strategy_id) is None
    assert reader.publisher(project.project_id, "k") is None
    assert reader.resource(gone.resource.resource_id) == gone.resource
    assert reader.applets(other.project_id) == [stays.applet]
    assert reader.strategies(other.project_id) == stays.strategies
    assert reader.publisher(other.project_id, "k") is not None
    with pytest.raises(ProjectNotFoundError):
        registry("remove_project", project_id=project.project_id)
    registry.project("one")
