"""Publishers of a project and their tokens.

Early routes issue a JSON Web Token, later ones an access key (`w3b_...`). Both kinds are
replaced and expire in the same way.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from fieldbrook.core.clock import now_ms
from fieldbrook.core.errors import BadRequestError, FieldError, PublisherNotFoundError
from fieldbrook.core.model import Project, Publisher
from fieldbrook.gateway.management.framework.answers import page
from fieldbrook.gateway.management.framework.binding import Paging, Sfid, Text, Timestamp
from fieldbrook.gateway.management.framework.ownership import (
    own_project,
    own_row,
)
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.projects.replies.publishers import (
    PublisherPage,
    PublisherReply,
    PublisherRows,
    TokenReply,
    active_publisher,
    publisher_reply,
    publisher_row,
    token_reply,
)

EVENT_TYPES_LIMIT, EVENT_TYPES_BYTES = 100, 16 << 10
_DAY_MS = 86_400_000


class Expiry(msgspec.Struct, frozen=True, kw_only=True):
    """The expiry of a token, in days or as a time; without either, it never expires."""

    expiration_days: Annotated[int, msgspec.Meta(ge=0, le=36_500)] = msgspec.field(
        default=0, name="expirationDays"
    )
    expires_at: Timestamp | None = msgspec.field(default=None, name="expiresAt")

    def milliseconds(self) -> int:
        """Return the time of expiry in Unix milliseconds; 0 means never.

        Raises:
            BadRequestError: the time is in the past, or both fields are given.
        """
        if self.expires_at is None:
            return now_ms() + self.expiration_days * _DAY_MS if self.expiration_days else 0
        moment = round(self.expires_at.timestamp() * 1_000)
        if self.expiration_days:
            reason = "cannot be combined with expirationDays"
        elif moment <= now_ms():
            reason = "lies in the past"
        else:
            return moment
        raise BadRequestError(FieldError("expiresAt", reason, "body"))


class NamePublisher(msgspec.Struct, frozen=True, kw_only=True):
    """A publisher's name, its key (`pub_id` in its messages), and the event types it may send.
    An empty list allows all event types."""

    name: Text
    key: Text
    event_types: list[Text] | None = msgspec.field(default=None, name="eventTypes")


class CreatePublisher(Expiry, frozen=True, kw_only=True):
    """A new publisher; see `NamePublisher`."""

    name: Text
    key: Text
    event_types: list[Text] | None = msgspec.field(default=None, name="eventTypes")


class RemovePublishers(msgspec.Struct, frozen=True, kw_only=True):
    """The publishers to remove."""

    publisher_ids: list[Sfid] = msgspec.field(name="publisherID")


class FilterPublishers(Paging, frozen=True, kw_only=True):
    """Filters of publishers: ids, keys, a part of the name, its end (`lname`) or its beginning
    (`rname`), or a part of the key or the name in any case (`find`). Without a filter, all
    publishers of the project. Removing ignores `size` and `offset`."""

    publisher_ids: list[Sfid] = msgspec.field(default_factory=list, name="publisherIDs")
    keys: list[str] = msgspec.field(default_factory=list, name="key")
    name: str = ""
    lname: str = ""
    rname: str = ""
    find: str = ""

    def matches(self, publisher: Publisher) -> bool:
        """Whether a publisher passes every filter."""
        find = self.find.casefold()
        return (
            (not self.publisher_ids or publisher.publisher_id in self.publisher_ids)
            and (not self.keys or publisher.key in self.keys)
            and self.name in publisher.name
            and publisher.name.endswith(self.lname)
            and publisher.name.startswith(self.rname)
            and (find in publisher.key.casefold() or find in publisher.name.casefold())
        )


# ---------------------------------------------------------------- early routes


async def create_publisher(
    call: Call[CreatePublisher, None],
) -> PublisherReply:
    """Create a publisher; the answer carries its token."""
    return await _create(call, "create_publisher", access_key=False)


async def list_publishers(call: Call[None, FilterPublishers]) -> PublisherRows:
    """The publishers of a project."""
    project = own_project(call)

    def look() -> PublisherRows:
        found = _found(call, project, call.query)
        rows = page(found, call.query, by_creation=True)
        return PublisherRows([publisher_row(row, project) for row in rows], len(found))

    return await call.search(look)


async def update_publisher(call: Call[NamePublisher, None]) -> None:
    """Rename a publisher; its token stays."""
    publisher = _own_publisher(call)
    types = call.body.event_types
    await call.context.registry.call(
        "update_publisher",
        publisher_id=publisher.publisher_id,
        name=call.body.name,
        key=call.body.key,
        event_types=None if types is None else _event_types(types),
    )


async def remove_publishers(call: Call[None, RemovePublishers]) -> None:
    """Remove publishers; ids that the project does not have are ignored."""
    await _remove(call, own_project(call), call.query.publisher_ids)


# ---------------------------------------------------------------- later routes


async def create_publisher_with_key(
    call: Call[CreatePublisher, None],
) -> PublisherReply:
    """Create a publisher; its token is an access key."""
    return await _create(call, "create_publisher", access_key=True)


async def upsert_publisher(
    call: Call[CreatePublisher, None],
) -> PublisherReply:
    """The existing publisher with this key, unchanged; it is created if there is none."""
    return await _create(call, "upsert_publisher", access_key=True)


async def create_anonymous_publisher(
    call: Call[None, None],
) -> PublisherReply:
    """Make the project public: events without a token are attributed to this publisher."""
    publisher = await call.context.registry.call(
        "create_anonymous_publisher", project_id=own_project(call).project_id
    )
    return publisher_reply(publisher)


async def page_publishers(
    call: Call[None, FilterPublishers],
) -> PublisherPage:
    """The publishers of a project, with what each has sent since the node started."""
    project = own_project(call)
    found = await call.search(lambda: _found(call, project, call.query))
    rows = page(found, call.query)
    activity = await call.context.publisher_activity([row.publisher_id for row in rows])
    shown = await call.search(
        lambda: [active_publisher(row, activity.get(row.publisher_id)) for row in rows]
    )
    return PublisherPage(shown, len(found))


async def get_publisher(call: Call[None, None]) -> PublisherReply:
    """One publisher, with its token."""
    return publisher_reply(_own_publisher(call))


async def remove_publisher(call: Call[None, None]) -> None:
    """Remove a publisher; its token stops working."""
    publisher = _own_publisher(call)
    await call.context.registry.call(
        "remove_publishers",
        project_id=publisher.project_id,
        publisher_ids=[publisher.publisher_id],
    )


async def remove_fitting_publishers(call: Call[None, FilterPublishers]) -> None:
    """Remove the publishers that match the filters; without a filter, all of the project."""
    project = own_project(call)
    found = _found(call, project, call.query)
    await _remove(call, project, [publisher.publisher_id for publisher in found])


async def rotate_token(call: Call[Expiry, None]) -> PublisherReply:
    """Give a publisher a new token, an access key; the old token stops working at once."""
    publisher = await call.context.registry.call(
        "rotate_publisher_token",
        publisher_id=_own_publisher(call).publisher_id,
        expires_at=call.body.milliseconds(),
    )
    return publisher_reply(publisher)


async def get_token(call: Call[None, None]) -> TokenReply:
    """The metadata of a publisher's token, without the token itself."""
    return token_reply(_own_publisher(call))


# ---------------------------------------------------------------- what both share


async def _create(
    call: Call[CreatePublisher, None], op: str, *, access_key: bool
) -> PublisherReply:
    publisher = await call.context.registry.call(
        op,
        project_id=own_project(call).project_id,
        name=call.body.name,
        key=call.body.key,
        access_key=access_key,
        event_types=_event_types(call.body.event_types or []),
        expires_at=call.body.milliseconds(),
    )
    return publisher_reply(publisher)


def _event_types(types: list[str]) -> list[str]:
    """Check the event types that a publisher may send.

    Raises:
        BadRequestError: an event type is empty, or there are more than 100, or more than 16 KiB.
    """
    if len(types) > EVENT_TYPES_LIMIT:
        raise BadRequestError(FieldError("eventTypes", f"more than {EVENT_TYPES_LIMIT}", "body"))
    if sum(len(event_type.encode()) for event_type in types) > EVENT_TYPES_BYTES:
        reason = f"more than {EVENT_TYPES_BYTES} bytes together"
        raise BadRequestError(FieldError("eventTypes", reason, "body"))
    empty = [n for n, event_type in enumerate(types) if not event_type]
    if empty:
        raise BadRequestError(*(FieldError(f"eventTypes[{n}]", "empty", "body") for n in empty))
    return types


def _own_publisher(call: Call[Any, Any]) -> Publisher:
    find = call.context.reader.publisher_anywhere
    return own_row(call, "publisherID", find, lambda row_id: PublisherNotFoundError(pub_id=row_id))


def _found(call: Call[Any, Any], project: Project, wanted: FilterPublishers) -> list[Publisher]:
    return [p for p in call.context.reader.publishers(project.project_id) if wanted.matches(p)]


async def _remove(call: Call[Any, Any], project: Project, publisher_ids: list[Any]) -> None:
    await call.context.registry.call(
        "remove_publishers", project_id=project.project_id, publisher_ids=publisher_ids
    )


_ALL, _X, _DATA = (
    "/publisher/{projectName}",
    "/publisher/x/{projectName}",
    "/publisher/data/{publisherID}",
)
_ONE = "{publisherID}"
ROUTES: tuple[Route, ...] = (
    Route("POST", _ALL, "CreatePublisher", create_publisher),
    Route("GET", _ALL, "ListPublisher", list_publishers),
    Route("PUT", f"{_ALL}/{_ONE}", "UpdatePublisher", update_publisher),
    Route("DELETE", _ALL, "RemovePublisher", remove_publishers),
    Route("POST", _X, "CreatePublisher", create_publisher_with_key),
    Route("POST", f"{_X}/upsert", "UpsertPublisher", upsert_publisher),
    Route("POST", f"{_X}/anonymous", "CreateAnonymousPublisher", create_anonymous_publisher),
    Route("PUT", f"{_X}/{_ONE}", "UpdatePublisher", update_publisher),
    Route("GET", _X, "ListPublisher", page_publishers),
    Route("DELETE", _X, "BatchRemovePublisher", remove_fitting_publishers),
    Route("GET", _DATA, "GetPublisher", get_publisher),
    Route("DELETE", _DATA, "RemovePublisher", remove_publisher),
    Route("POST", f"{_DATA}/token", "RotatePublisherToken", rotate_token),
    Route("GET", f"{_DATA}/token", "GetPublisherToken", get_token),
)
