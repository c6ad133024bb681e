"""Ownership checks: callers reach their own objects, administrators reach all of them.

Another account's object gets the same answer as one that does not exist, so a caller cannot
find out which names and ids are in use.
"""

from __future__ import annotations

from typing import Any

from fieldbrook.core.errors import (
    AppletNotFoundError,
    InstanceNotFoundError,
    ProjectNotFoundError,
    PublisherNotFoundError,
    ResourcePermNotFoundError,
    StrategyNotFoundError,
)
from fieldbrook.core.model import ADMIN, Account, Applet, Project, Publisher, Resource, Strategy
from fieldbrook.gateway.channel import project_name
from fieldbrook.gateway.management.framework.route import Call


def own_project(call: Call[Any, Any]) -> Project:
    """The project that the path names, with or without the prefix of its owner.

    Raises:
        ProjectNotFoundError: there is none, or another account owns it.
    """
    name = call.path["projectName"]
    project = call.context.reader.project_named(project_name(name))
    if project is None or not _may(call.account, project.account_id):
        raise ProjectNotFoundError(project=name)
    return project


def own_project_with_id(call: Call[Any, Any]) -> Project:
    """The project whose id is in the path.

    Raises:
        ProjectNotFoundError: there is none, or another account owns it.
    """
    project_id = call.id("projectID")
    project = call.context.reader.project(project_id)
    if project is None or not _may(call.account, project.account_id):
        raise ProjectNotFoundError(project=project_id)
    return project


def may_project(call: Call[Any, Any], project_id: int) -> bool:
    """Whether the caller owns a project or is an administrator."""
    return _may_project(call, project_id)


def own_applet(call: Call[Any, Any], applet_id: int) -> Applet:
    """The applet with this id.

    Raises:
        AppletNotFoundError: there is none, or another account owns it.
    """
    applet = call.context.reader.applet(applet_id)
    if applet is None or not _may_project(call, applet.project_id):
        raise AppletNotFoundError(applet=applet_id)
    return applet


def own_applet_in(call: Call[Any, Any], project: Project, applet_id: int) -> Applet:
    """The applet with this id in a project.

    Raises:
        AppletNotFoundError: the project has no such applet.
    """
    applet = call.context.reader.applet(applet_id)
    if applet is None or applet.project_id != project.project_id:
        raise AppletNotFoundError(applet=applet_id)
    return applet


def own_instance(call: Call[Any, Any]) -> Applet:
    """The applet whose instance the path names.

    Raises:
        InstanceNotFoundError: there is none, or another account owns it.
    """
    instance_id = call.id("instanceID")
    applet = call.context.reader.applet_of_instance(instance_id)
    if applet is None or not _may_project(call, applet.project_id):
        raise InstanceNotFoundError(instance=instance_id)
    return applet


def own_resource(call: Call[Any, Any]) -> Resource:
    """The resource the path names.

    Raises:
        ResourcePermNotFoundError: there is none, its owner has deleted it, or another account
            owns it.
    """
    resource_id = call.id("resourceID")
    resource = call.context.reader.resource(resource_id)
    if resource is None or resource.deleted or not _may(call.account, resource.account_id):
        raise ResourcePermNotFoundError(resource=resource_id)
    return resource


def own_strategy_with_id(call: Call[Any, Any]) -> Strategy:
    """The strategy whose id is in the path, in any project of the caller.

    Raises:
        StrategyNotFoundError: there is none, or another account owns it.
    """
    strategy_id = call.id("strategyID")
    strategy = call.context.reader.strategy(strategy_id)
    if strategy is None or not _may_project(call, strategy.project_id):
        raise StrategyNotFoundError(what=f"strategy {strategy_id}")
    return strategy


def own_strategy(call: Call[Any, Any]) -> Strategy:
    """The strategy whose id is in the path, in the project that the path names.

    Raises:
        ProjectNotFoundError, StrategyNotFoundError: there is none, or another account owns it.
    """
    project = own_project(call)
    strategy_id = call.id("strategyID")
    strategy = call.context.reader.strategy(strategy_id)
    if strategy is None or strategy.project_id != project.project_id:
        raise StrategyNotFoundError(what=f"strategy {strategy_id}")
    return strategy


def own_publisher(call: Call[Any, Any]) -> Publisher:
    """The publisher whose id is in the path, in the project that the path names.

    Raises:
        ProjectNotFoundError, PublisherNotFoundError: there is none, or another account owns it.
    """
    project = own_project(call)
    publisher_id = call.id("publisherID")
    publisher = call.context.reader.publisher_with_id(project.project_id, publisher_id)
    if publisher is None:
        raise PublisherNotFoundError(pub_id=publisher_id)
    return publisher


def _may(account: Account, owner_id: int) -> bool:
    return account.account_id == owner_id or account.role == ADMIN


def _may_project(call: Call[Any, Any], project_id: int) -> bool:
    project = call.context.reader.project(project_id)
    return project is not None and _may(call.account, project.account_id)
