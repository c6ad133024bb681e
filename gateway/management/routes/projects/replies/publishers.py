"""Answers about publishers and their tokens."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.model import Project, Publisher
from fieldbrook.gateway.management.framework.answers import Page, Timed, times
from fieldbrook.gateway.management.routes.accounts.access_keys import (
    PrivilegeReply,
    privilege_replies,
)
from fieldbrook.observability.publisher_counts import Seen
from fieldbrook.security.access_keys import PUBLISHER_PRIVILEGES, is_access_key, publisher_key_name


class PublisherReply(Timed, frozen=True):
    """A publisher with its token, for the project's owner."""

    publisher_id: str
    project_id: str
    name: str
    key: str
    token: str
    event_types: list[str] | UnsetType = UNSET
    expired_at: str | UnsetType = UNSET


class ActivePublisher(PublisherReply, frozen=True, kw_only=True):
    """A publisher with its activity since the node started.

    `events` counts its answered events. `lastSeen` is when the last one was answered, to the
    second; it is absent when there was none. Both are kept in memory, for the latest 50,000
    publishers of each gateway process.
    """

    last_seen: str | UnsetType = UNSET
    events: int


class PublisherPage(Page[ActivePublisher], frozen=True):
    """A page of publishers; `total` counts all matching ones."""


class PublisherRow(PublisherReply, frozen=True, kw_only=True):
    """A publisher in the list of the early interface, which spells the key `ProjectName` in this
    way."""

    project_name: str = msgspec.field(name="ProjectName")


class PublisherRows(Page[PublisherRow], frozen=True):
    """A page of publishers of the early interface; `total` counts all matching ones."""


class TokenReply(Timed, frozen=True):
    """The metadata of a publisher's token, in the form of an access key.

    Source: interface document, 4.4.
    """

    name: str
    identity_type: str
    identity_id: str
    form: str
    privileges: list[PrivilegeReply]
    event_types: list[str] | UnsetType = UNSET
    expired_at: str | UnsetType = UNSET


def publisher_reply(publisher: Publisher) -> PublisherReply:
    """One publisher."""
    return PublisherReply(**_fields(publisher))


def active_publisher(publisher: Publisher, seen: Seen | None) -> ActivePublisher:
    """One publisher with what it has sent."""
    return ActivePublisher(
        **_fields(publisher),
        last_seen=UNSET if seen is None else rfc3339(seen.last_s * 1000),
        events=0 if seen is None else seen.events,
    )


def publisher_row(publisher: Publisher, project: Project) -> PublisherRow:
    """One publisher with the name of its project."""
    return PublisherRow(**_fields(publisher), project_name=project.name)


def token_reply(publisher: Publisher) -> TokenReply:
    """The metadata of a publisher's token, without the token itself."""
    issued_at = rfc3339(publisher.token_issued_at or publisher.created_at)
    expires_at = publisher.token_expires_at
    return TokenReply(
        name=publisher_key_name(publisher.publisher_id),
        identity_type="PUBLISHER",
        identity_id=str(publisher.publisher_id),
        form="w3b" if is_access_key(publisher.token) else "jwt",
        privileges=privilege_replies(PUBLISHER_PRIVILEGES),
        event_types=publisher.event_types or UNSET,
        expired_at=rfc3339(expires_at) if expires_at else UNSET,
        created_at=issued_at,
        updated_at=issued_at,
    )


def _fields(publisher: Publisher) -> dict[str, Any]:
    """The fields of `PublisherReply`."""
    expires_at = publisher.token_expires_at
    return {
        "publisher_id": str(publisher.publisher_id),
        "project_id": str(publisher.project_id),
        "name": publisher.name,
        "key": publisher.key,
        "token": publisher.token,
        "event_types": publisher.event_types or UNSET,
        "expired_at": rfc3339(expires_at) if expires_at else UNSET,
        **times(publisher),
    }
