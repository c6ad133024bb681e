"""Ownership checks: callers reach their own objects, administrators reach all of them.

Another account's object gets the same answer as one that does not exist, so a caller cannot
find out which names and ids are in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from fieldbrook.core.errors import (
    AppletNotFoundError,
    InstanceNotFoundError,
    NodeError,
    ProjectNotFoundError,
    ResourcePermNotFoundError,
)
from fieldbrook.core.model import ADMIN, Account, Applet, Project, Resource
from fieldbrook.gateway.channel import project_name
from fieldbrook.gateway.management.framework.route import Call


class _ProjectRow(Protocol):
    @property
    def project_id(self) -> int: ...


R = TypeVar("R", bound=_ProjectRow)


def own_project(call: Call[Any, Any]) -> Project:
    """Return the project whose id or name is in the path; a name may have the prefix of its
    account.

    Raises:
        ProjectNotFoundError: there is none, or another account owns it.
    """
    reader = call.context.reader
    wanted: int | str
    if "projectID" in call.path:
        wanted = call.id("projectID")
        project = reader.project(wanted)
    else:
        wanted = call.path["projectName"]
        project = reader.project_named(project_name(wanted))
    if project is None or not _may(call.account, project.account_id):
        raise ProjectNotFoundError(project=wanted)
    return project


def own_row(
    call: Call[Any, Any],
    parameter: str,
    find: Callable[[int], R | None],
    not_found: Callable[[int], NodeError],
) -> R:
    """Return the row whose id is in the path.

    If the path names a project, the row must belong to this project; otherwise it may belong to any
    project of the caller.

    Args:
        parameter: the name of the id in the path.
        find: returns the row with an id, or None.
        not_found: makes the error for an id.

    Raises:
        ProjectNotFoundError: the path names a project that is not one of the caller's.
        NodeError: the error of `not_found`.
    """
    in_path = "projectName" in call.path or "projectID" in call.path
    project = own_project(call) if in_path else None
    row_id = call.id(parameter)
    row = find(row_id)
    if row is None or not (
        may_project(call, row.project_id)
        if project is None
        else row.project_id == project.project_id
    ):
        raise not_found(row_id)
    return row


def own_applet(call: Call[Any, Any]) -> Applet:
    """Return the applet whose id is in the path; see `own_row`.

    Raises:
        AppletNotFoundError, ProjectNotFoundError: it does not exist, or another account owns it.
    """
    find = call.context.reader.applet
    return own_row(call, "appletID", find, lambda row_id: AppletNotFoundError(applet=row_id))


def own_instance(call: Call[Any, Any]) -> Applet:
    """Return the applet whose instance the path names.

    Raises:
        InstanceNotFoundError: there is no such instance, or another account owns it.
    """
    find = call.context.reader.applet_of_instance
    return own_row(call, "instanceID", find, lambda row_id: InstanceNotFoundError(instance=row_id))


def own_resource(call: Call[Any, Any]) -> Resource:
    """Return the resource that the path names.

    Raises:
        ResourcePermNotFoundError: there is no such resource, its owner has deleted it, or another
            account owns it.
    """
    resource_id = call.id("resourceID")
    resource = call.context.reader.resource(resource_id)
    if resource is None or resource.deleted or not _may(call.account, resource.account_id):
        raise ResourcePermNotFoundError(resource=resource_id)
    return resource


def may_project(call: Call[Any, Any], project_id: int) -> bool:
    """Return whether the caller owns a project or is an administrator."""
    project = call.context.reader.project(project_id)
    return project is not None and _may(call.account, project.account_id)


def _may(account: Account, owner_id: int) -> bool:
    return account.account_id == owner_id or account.role == ADMIN
