"""Resources: commands that remove them. Uploading an applet creates them."""

from __future__ import annotations

from fieldbrook.core.errors import ResourceNotFoundError
from fieldbrook.core.model import Resource
from fieldbrook.storage.registry.commands.change import Commands, command


class ResourceCommands(Commands):
    """Commands on resources."""

    @command
    def remove_resource(self, resource_id: int) -> Resource:
        """Delete a resource.

        While an applet runs it or keeps a version of it, its row is only marked as deleted, and
        its module's file stays. Both are removed with the last such use.

        Raises:
            ResourceNotFoundError: no such resource, or it is deleted already.
        """
        with self.change() as change:
            resource = change.resource(resource_id)
            if resource.deleted:
                raise ResourceNotFoundError(resource=resource_id)
            if change.uses(resource_id):
                return change.touch(self.tables.resources, resource, deleted=True)
            change.remove_resource(resource)
            return resource
