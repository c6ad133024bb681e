"""Resources: the uploaded modules of an account."""

from __future__ import annotations

from typing import Any

from fieldbrook.gateway.management.binding import Paging
from fieldbrook.gateway.management.ownership import own_resource
from fieldbrook.gateway.management.route import Auth, Call, Download, Route
from fieldbrook.gateway.management.views import Json, page, resource_json

_ALL = Paging(size=-1)


async def list_resources(call: Call[None, None]) -> list[Json]:
    """The caller's resources: a bare array, not paged."""
    found = call.context.reader.resources(call.account.account_id)
    return [resource_json(resource) for resource in page(found, _ALL)]


async def remove_resource(call: Call[None, None]) -> None:
    """Remove a resource no applet uses."""
    resource = own_resource(call)
    await call.context.registry.call("remove_resource", resource_id=resource.resource_id)


async def download_resource(call: Call[None, None]) -> Download:
    """The module's bytes."""
    resource = own_resource(call)
    return Download(call.context.modules_dir / f"{resource.sha256}.wasm", resource.filename)


ROUTES: tuple[Route[Any, Any], ...] = (
    Route("GET", "/resource", "ListResources", Auth.ACCOUNT, list_resources),
    Route("DELETE", "/resource/{resourceID}", "RemoveResource", Auth.ACCOUNT, remove_resource),
    Route(
        "GET",
        "/resource/data/{resourceID}",
        "DownloadResource",
        Auth.ACCOUNT,
        download_resource,
    ),
)
