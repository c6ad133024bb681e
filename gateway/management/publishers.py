"""Publishers of a project."""

from __future__ import annotations

from typing import Any

import msgspec

from fieldbrook.gateway.management.binding import Paging, Sfid, Text
from fieldbrook.gateway.management.ownership import own_project, own_publisher
from fieldbrook.gateway.management.route import Auth, Call, Route
from fieldbrook.gateway.management.views import Json, page, publisher_json


class NamePublisher(msgspec.Struct, frozen=True, kw_only=True):
    """A publisher's name, and the key its messages carry as `pub_id`."""

    name: Text
    key: Text


class RemovePublishers(msgspec.Struct, frozen=True, kw_only=True):
    """Which publishers to remove."""

    publisher_ids: list[Sfid] = msgspec.field(name="publisherID")


async def create_publisher(call: Call[NamePublisher, None]) -> Json:
    """Create a publisher; the answer carries its token."""
    publisher = await call.context.registry.call(
        "create_publisher",
        project_id=own_project(call).project_id,
        name=call.body.name,
        key=call.body.key,
    )
    return publisher_json(publisher)


async def list_publishers(call: Call[None, Paging]) -> Json:
    """The publishers of a project. The key `ProjectName` is spelled so by the interface."""
    project = own_project(call)
    found = call.context.reader.publishers(project.project_id)
    return {
        "data": [
            {**publisher_json(publisher), "ProjectName": project.name}
            for publisher in page(found, call.query)
        ],
        "total": len(found),
    }


async def update_publisher(call: Call[NamePublisher, None]) -> None:
    """Rename a publisher; its token stays."""
    await call.context.registry.call(
        "update_publisher",
        publisher_id=own_publisher(call).publisher_id,
        name=call.body.name,
        key=call.body.key,
    )


async def remove_publishers(call: Call[None, RemovePublishers]) -> None:
    """Remove publishers; ids the project does not have are passed over."""
    await call.context.registry.call(
        "remove_publishers",
        project_id=own_project(call).project_id,
        publisher_ids=call.query.publisher_ids,
    )


ROUTES: tuple[Route[Any, Any], ...] = (
    Route(
        "POST",
        "/publisher/{projectName}",
        "CreatePublisher",
        Auth.ACCOUNT,
        create_publisher,
        body=NamePublisher,
    ),
    Route(
        "GET",
        "/publisher/{projectName}",
        "ListPublisher",
        Auth.ACCOUNT,
        list_publishers,
        query=Paging,
    ),
    Route(
        "PUT",
        "/publisher/{projectName}/{publisherID}",
        "UpdatePublisher",
        Auth.ACCOUNT,
        update_publisher,
        body=NamePublisher,
    ),
    Route(
        "DELETE",
        "/publisher/{projectName}",
        "RemovePublisher",
        Auth.ACCOUNT,
        remove_publishers,
        query=RemovePublishers,
    ),
)
