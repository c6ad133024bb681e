"""Commands on applets and their versions."""

from __future__ import annotations

import pytest

from fieldbrook.core.errors import (
    AppletNameConflictError,
    AppletNotFoundError,
    InstanceNotFoundError,
    StrategyConflictError,
)
from fieldbrook.core.model import NAME_LIMIT, STARTED, STOPPED
from tests.unit.storage.registry.harness import OTHER_MODULE, Registry, fields_of


def test_a_name_that_the_project_has_already_gets_the_first_free_suffix(
    registry: Registry,
) -> None:
    project = registry.project("one")
    registry.applet(project, "log_3")
    names = [registry.applet(project).applet.name for _ in range(4)]
    assert names == ["log", "log_2", "log_4", "log_5"]
    long = [registry.applet(project, "n" * NAME_LIMIT).applet.name for _ in range(2)]
    assert long == ["n" * NAME_LIMIT, "n" * (NAME_LIMIT - 2) + "_2"]
    assert registry.applet(registry.project("two")).applet.name == "log"


def test_a_refused_applet_leaves_no_trace(registry: Registry) -> None:
    project = registry.project()
    before = registry.reader.version()
    with pytest.raises(StrategyConflictError):
        registry.applet(project, strategies=(("A", "start"), ("A", "start")))
    assert registry.reader.version() == before
    assert not registry.reader.resources()
    assert not registry.reader.applets(project.project_id)


def test_updating_an_applet_changes_what_is_given(registry: Registry) -> None:
    project = registry.project()
    made = registry.applet(project)
    applet_id = made.applet.applet_id
    registry("set_instance_state", instance_id=made.applet.instance_id, state=STOPPED)
    renamed = registry("update_applet", applet_id=applet_id, name="other")
    assert (renamed.applet.name, renamed.applet.state) == ("other", STOPPED)
    assert renamed.strategies == made.strategies
    module = OTHER_MODULE
    swapped = registry("update_applet", applet_id=applet_id, module=fields_of(module))
    assert swapped.applet.sha256 == swapped.resource.sha256 == module.sha256
    assert (swapped.applet.name, swapped.applet.state) == ("other", STARTED)
    assert swapped.applet.instance_id == made.applet.instance_id
    assert swapped.applet.updated_at > made.applet.updated_at
    assert registry.reader.applets(project.project_id) == [swapped.applet]


def test_a_strategy_whose_handler_vanishes_with_a_new_module_stays(registry: Registry) -> None:
    made = registry.applet(registry.project(), strategies=(("A", "mint"),))
    update = {"applet_id": made.applet.applet_id, "module": fields_of(OTHER_MODULE)}
    updated = registry("update_applet", **update)
    assert updated.strategies == made.strategies
    assert not updated.resource.exports("mint")
    replaced = registry("update_applet", strategies=[["A", "start"]], **update)
    assert [s.handler for s in replaced.strategies] == ["start"]
    assert registry.reader.strategy(made.strategies[0].strategy_id) is None


def test_renaming_an_applet_to_a_taken_name_is_refused(registry: Registry) -> None:
    project = registry.project()
    registry.applet(project, "one")
    two = registry.applet(project, "two").applet
    with pytest.raises(AppletNameConflictError):
        registry("update_applet", applet_id=two.applet_id, name="one")
    with pytest.raises(AppletNotFoundError):
        registry("update_applet", applet_id=5, name="one")


def test_removing_an_applet_removes_its_instance_and_strategies(registry: Registry) -> None:
    project = registry.project()
    made, other = registry.applet(project, "one"), registry.applet(project, "two")
    registry("remove_applet", applet_id=made.applet.applet_id)
    assert registry.reader.strategies(project.project_id) == other.strategies
    with pytest.raises(InstanceNotFoundError):
        registry("set_instance_state", instance_id=made.applet.instance_id, state=STOPPED)
    with pytest.raises(AppletNotFoundError):
        registry("remove_applet", applet_id=made.applet.applet_id)
