"""Resources: commands on them, and adding one when a module is uploaded."""

from __future__ import annotations

import msgspec

from fieldbrook.core import quotas
from fieldbrook.core.errors import ResourceNotFoundError
from fieldbrook.core.model import Resource
from fieldbrook.storage.registry.commands.change import Change, Commands, command


class Module(msgspec.Struct, array_like=True, frozen=True):
    """A compiled upload: `size` is in bytes, `handlers` are its exports of `(i32) -> i32`.

    `compiled_size` is the size of the compiled form in bytes.
    """

    filename: str
    sha256: str
    md5: str
    size: int
    handlers: list[str]
    compiled_size: int = 0


def add_resource(change: Change, account_id: int, module: Module) -> Resource:
    """Return an account's resource with the content of a module; add it if it is new.

    Raises:
        QuotaExceededError: the account would exceed its quota of modules or bytes.
    """
    found = change.now.resource_with_content(account_id, bytes.fromhex(module.sha256))
    if found is not None and found.deleted:  # uploaded again: undo the deletion
        return change.touch(
            change.tables.resources,
            found,
            deleted=False,
            filename=module.filename,
            created_at=change.time_ms,
        )
    if found is not None:
        return found
    change.require_quota(account_id, quotas.MODULES)
    change.require_quota(account_id, quotas.BYTES, module.size + module.compiled_size)
    return change.add(
        change.tables.resources,
        Resource(
            resource_id=change.new_id(),
            account_id=account_id,
            sha256=module.sha256,
            md5=module.md5,
            size=module.size,
            filename=module.filename,
            handlers=module.handlers,
            compiled_size=module.compiled_size,
        ),
    )


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
            if change.is_resource_used(resource_id):
                return change.touch(self.tables.resources, resource, deleted=True)
            change.remove_resource(resource)
            return resource
