"""Instances of applets: commands that start, stop and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fieldbrook.core.errors import InstanceNotFoundError
from fieldbrook.core.model import MEMORY, REMOVED, STARTED, Applet
from fieldbrook.storage.registry.commands.change import Change, Commands, command


class Cache(msgspec.Struct, array_like=True, frozen=True):
    """The place of an applet's key-value pairs; see `model.Applet`."""

    mode: str = MEMORY
    prefix: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the fields of the applet."""
        return {"cache_mode": self.mode, "cache_prefix": self.prefix}


def started(change: Change, applet: Applet, cache: Cache | None = None) -> dict[str, Any]:
    """Return the changed fields of an applet whose instance starts.

    An applet whose instance was removed gets a new instance id. None leaves the cache as it is.
    """
    fields: dict[str, Any] = {"state": STARTED}
    if applet.state == REMOVED:
        fields["instance_id"] = change.new_id()
    return fields | (cache.fields() if cache is not None else {})


class InstanceCommands(Commands):
    """Commands on instances."""

    @command
    def create_instance(self, applet_id: int, cache: Cache | None = None) -> Applet:
        """Start the instance of an applet; create a new one if it was removed.

        Raises:
            AppletNotFoundError: no such applet.
        """
        with self.change() as change:
            applet = change.applet(applet_id)
            return change.update(self.tables.applets, applet, **started(change, applet, cache))

    @command
    def remove_instances(self, project_id: int, instance_ids: Sequence[int]) -> int:
        """Remove instances of this project by id, ignoring others; return the number removed.

        Their applets stay, but run no events.
        """
        with self.change() as change:
            found = [change.now.applet_of_instance(n) for n in instance_ids]
            own = [a for a in found if a is not None and a.project_id == project_id]
            for applet in own:
                change.update(self.tables.applets, applet, state=REMOVED)
            return len(own)

    @command
    def set_instance_state(self, instance_id: int, state: str) -> Applet:
        """Start or stop an instance; an instance that is in that state already is not changed.

        Raises:
            InstanceNotFoundError: no such instance.
        """
        with self.change() as change:
            applet = _applet(change, instance_id)
            return change.update(self.tables.applets, applet, state=state)

    @command
    def restart_instance(self, instance_id: int, cache: Cache | None = None) -> Applet:
        """Restart an instance. This always counts as a change, so that the project notices it.

        Raises:
            InstanceNotFoundError: no such instance.
        """
        with self.change() as change:
            applet = _applet(change, instance_id)
            return change.touch(self.tables.applets, applet, **started(change, applet, cache))


def _applet(change: Change, instance_id: int) -> Applet:
    applet = change.now.applet_of_instance(instance_id)
    if applet is None:
        raise InstanceNotFoundError(instance=instance_id)
    return applet
