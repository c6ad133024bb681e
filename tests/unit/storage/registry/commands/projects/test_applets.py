"""Commands on applets and their versions."""

from __future__ import annotations

from fieldbrook.core.model import STARTED, STOPPED
from tests.unit.storage.registry.harness import OTHER_MODULE, Registry, fields_of


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
