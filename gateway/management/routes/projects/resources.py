"""Resources: the uploaded modules of an account.

Each account has its own row for a module. The module's file exists once, as long as any account has
a row for it. The row of a deleted resource stays while an applet needs it, but no list shows it.

Source: interface document, 2b. If both generations have a route, its answer is that of the later
one.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from fieldbrook.core.errors import ResourceNotFoundError, UnsupportedFSOperatorError
from fieldbrook.core.model import Resource
from fieldbrook.gateway.management.framework.answers import page
from fieldbrook.gateway.management.framework.binding import Paging, Sfid, Timestamp
from fieldbrook.gateway.management.framework.ownership import own_resource
from fieldbrook.gateway.management.framework.route import Call, Download, Route
from fieldbrook.gateway.management.routes.projects.replies.resources import (
    ResourcePage,
    resource_reply,
)


class ListResources(Paging, frozen=True, kw_only=True):
    """Filters: ids, times, names, a part of the name, and MD5 sums. Without `size`, all matching
    resources are listed. Resources never expire, so `expireBefore` matches none."""

    size: Annotated[int, msgspec.Meta(ge=-1)] = -1
    resource_ids: list[Sfid] = msgspec.field(default_factory=list, name="resourceID")
    uploaded_before: Timestamp | None = msgspec.field(default=None, name="uploadedBefore")
    uploaded_after: Timestamp | None = msgspec.field(default=None, name="uploadedAfter")
    expire_before: Timestamp | None = msgspec.field(default=None, name="expireBefore")
    expire_after: Timestamp | None = msgspec.field(default=None, name="expireAfter")
    filenames: list[str] = msgspec.field(default_factory=list, name="filename")
    filename_like: str = msgspec.field(default="", name="filenameLike")
    md5s: list[str] = msgspec.field(default_factory=list, name="md5")

    def matches(self, resource: Resource) -> bool:
        """Whether a resource passes every filter."""
        uploaded = resource.created_at / 1_000
        return (
            not resource.deleted
            and (not self.resource_ids or resource.resource_id in self.resource_ids)
            and (self.uploaded_before is None or uploaded < self.uploaded_before.timestamp())
            and (self.uploaded_after is None or uploaded > self.uploaded_after.timestamp())
            and self.expire_before is None
            and (not self.filenames or resource.filename in self.filenames)
            and self.filename_like in resource.filename
            and (not self.md5s or resource.md5 in map(str.lower, self.md5s))
        )


async def list_resources(call: Call[None, ListResources]) -> ResourcePage:
    """The caller's resources."""
    resources = call.context.reader.resources(call.account.account_id)
    found = [resource for resource in resources if call.query.matches(resource)]
    data = [resource_reply(resource) for resource in page(found, call.query)]
    return ResourcePage(data, len(found))


async def remove_resource(call: Call[None, None]) -> None:
    """Delete a resource. Applets that run it, or have a stored version of it, are not affected.
    The file is removed when no applet and no account has it any more."""
    resource = own_resource(call)
    await call.context.registry.call("remove_resource", resource_id=resource.resource_id)


async def download_resource(call: Call[None, None]) -> Download:
    """Download the module."""
    resource = own_resource(call)
    path = call.context.modules_dir / f"{resource.sha256}.wasm"
    if not path.exists():
        raise ResourceNotFoundError(resource=resource.resource_id)
    return Download(path, resource.filename, call.account)


async def get_resource_url(call: Call[None, None]) -> None:
    """Always refused: modules are stored on the node, so there is no external URL."""
    resource = own_resource(call)
    raise UnsupportedFSOperatorError(path=f"/resource/data/{resource.resource_id}")


_ID = "{resourceID}"
ROUTES: tuple[Route, ...] = (
    Route("GET", "/resource", "ListResources", list_resources),
    Route("DELETE", f"/resource/{_ID}", "RemoveResource", remove_resource),
    Route("GET", f"/resource/data/{_ID}", "DownloadResource", download_resource),
    Route("GET", f"/resource/url/{_ID}", "GetDownloadResourceUrl", get_resource_url),
)
