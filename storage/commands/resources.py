"""Resources: commands that remove them. Uploading an applet creates them."""

from __future__ import annotations

from fieldbrook.errors import ResourceInUseError
from fieldbrook.model import Resource
from fieldbrook.storage.commands.change import Commands, command
from fieldbrook.storage.ids import to_key


class ResourceCommands(Commands):
    """Commands on resources."""

    @command
    def remove_resource(self, resource_id: int) -> Resource:
        """Remove a resource no applet uses.

        Raises:
            ResourceNotFoundError: no such resource.
            ResourceInUseError: an applet uses it; the description names one.
        """
        with self.change() as change:
            resource = change.resource(resource_id)
            users = self.tables.applets.scan(change.txn, "resource_applets", to_key(resource_id))
            for applet in users:
                raise ResourceInUseError(resource=resource_id, applet=applet.applet_id)
            change.remove(self.tables.resources, resource)
            return resource
