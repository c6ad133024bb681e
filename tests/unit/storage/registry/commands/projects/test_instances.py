"""Commands on instances."""

from __future__ import annotations

from fieldbrook.core.model import STARTED, STOPPED
from tests.unit.storage.registry.harness import Registry


def test_an_instance_stops_and_starts_and_a_restart_is_always_noticed(registry: Registry) -> None:
    instance_id = registry.applet(registry.project()).applet.instance_id
    version = registry.reader.version()
    registry("set_instance_state", instance_id=instance_id, state=STARTED)
    assert registry.reader.version() == version
    stopped = registry("set_instance_state", instance_id=instance_id, state=STOPPED)
    assert stopped.state == STOPPED
    started = registry("restart_instance", instance_id=instance_id)
    assert started.state == STARTED
    again = registry("restart_instance", instance_id=instance_id)
    assert again.updated_at > started.updated_at
    assert registry.reader.version() == version + 3
