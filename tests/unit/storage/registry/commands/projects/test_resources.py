"""Resources: one for each content, and deleted ones that applets still need."""

from __future__ import annotations

import pytest

from fieldbrook.core.errors import ResourceNotFoundError
from fieldbrook.storage.registry.service import Module
from tests.unit.storage.registry.harness import OTHER_MODULE, Registry, fields_of


def test_the_same_module_is_one_resource_per_account(registry: Registry) -> None:
    project = registry.project("one")
    foreign = registry.project("two", registry.account("bob").account_id)
    first = registry.applet(project, "a").resource
    assert registry.applet(project, "b").resource == first
    assert registry.applet(foreign).resource.resource_id != first.resource_id
    assert len(registry.reader.resources()) == 2


def test_a_deleted_resource_goes_with_the_last_applet_that_runs_it(registry: Registry) -> None:
    project = registry.project()
    one, two = registry.applet(project, "one"), registry.applet(project, "two")
    resource_id = one.resource.resource_id
    registry("remove_resource", resource_id=resource_id)
    (kept,) = registry.reader.resources()
    assert (kept.resource_id, kept.deleted) == (resource_id, True)
    with pytest.raises(ResourceNotFoundError):
        registry("remove_resource", resource_id=resource_id)
    registry("remove_applet", applet_id=one.applet.applet_id)
    assert registry.reader.resources() == [kept]
    assert not registry.writer.resources_removed
    registry("remove_applet", applet_id=two.applet.applet_id)
    assert registry.reader.resources() == []
    assert registry.writer.resources_removed


def test_a_resource_that_nothing_uses_goes_at_once(registry: Registry) -> None:
    made = registry.applet(registry.project())
    registry("remove_applet", applet_id=made.applet.applet_id)
    assert not registry.writer.resources_removed
    registry("remove_resource", resource_id=made.resource.resource_id)
    assert registry.reader.resources() == []
    assert registry.writer.resources_removed


def test_a_deleted_resource_that_is_uploaded_again_is_its_accounts_again(
    registry: Registry,
) -> None:
    project = registry.project()
    made = registry.applet(project, "one")
    registry("remove_resource", resource_id=made.resource.resource_id)
    registry.now_ms += 5_000
    again = registry.applet(project, "two")
    assert again.resource.resource_id == made.resource.resource_id
    assert (again.resource.deleted, again.resource.created_at) == (False, registry.now_ms)
    registry("remove_project", project_id=project.project_id)
    assert registry.reader.resources() == [again.resource]


@pytest.mark.parametrize("end", ["a newer module", "an earlier version", "the project"])
def test_a_deleted_resource_goes_with_the_version_that_needed_it(
    registry: Registry, end: str
) -> None:
    project = registry.project()
    made = registry.applet(project)
    applet_id = made.applet.applet_id
    newer = {"applet_id": applet_id, "module": fields_of(OTHER_MODULE), "versions_kept": 5}
    swapped = registry("update_applet", **newer)
    registry("remove_resource", resource_id=made.resource.resource_id)
    registry("remove_resource", resource_id=swapped.resource.resource_id)
    assert [resource.deleted for resource in registry.reader.resources()] == [True, True]
    if end == "the project":
        registry("remove_project", project_id=project.project_id)
        assert registry.reader.resources() == []
        return
    if end == "an earlier version":
        back = registry("roll_back_applet", applet_id=applet_id, number=1)
        assert back.resource.deleted
    third = Module("three.wasm", "56" * 32, "78" * 16, 300, ["start"])
    registry("update_applet", applet_id=applet_id, module=fields_of(third), versions_kept=1)
    assert [resource.sha256 for resource in registry.reader.resources()] == [third.sha256]
