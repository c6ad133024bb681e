"""Answers about resources: the uploaded modules."""

from __future__ import annotations

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.model import Resource
from fieldbrook.gateway.management.framework.answers import Page, Timed, times

NEVER = "0001-01-01T00:00:00Z"  # an unset time (interface document, 1.4)


class ResourceReply(Timed, frozen=True):
    """An uploaded module. `path` is its name in the node's store of modules; it never expires."""

    resource_id: str
    path: str
    md5: str
    uploaded_at: str
    expire_at: str
    filename: str
    comment: str
    size: int


class ResourcePage(Page[ResourceReply], frozen=True):
    """A page of resources; `total` counts all matching ones."""


def resource_reply(resource: Resource) -> ResourceReply:
    """One resource."""
    return ResourceReply(
        resource_id=str(resource.resource_id),
        path=resource.sha256,
        md5=resource.md5,
        uploaded_at=rfc3339(resource.created_at),
        expire_at=NEVER,
        filename=resource.filename,
        comment="",
        size=resource.size,
        **times(resource),
    )
