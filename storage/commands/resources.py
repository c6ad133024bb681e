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
        """Remove a resource no applet runs or keeps a version of.

        Raises:
            ResourceNotFoundError: no such resource.
            ResourceInUseError: one does; the description names it.
        """
        with self.change() as change:
            resource = change.resource(resource_id)
            users = self.tables.applets.scan(change.txn, "resource_applets", to_key(resource_id))
            for applet in users:
                raise ResourceInUseError(resource=resource_id, applet=applet.applet_id)
            kept = self.tables.applet_versions.scan(
                change.txn, "resource_versions", to_key(resource_id)
            )
            for version in kept:
                user = f"{version.applet_id}, version {version.number}"
                raise ResourceInUseError(resource=resource_id, applet=user)
            change.remove(self.tables.resources, resource)
            return resource
