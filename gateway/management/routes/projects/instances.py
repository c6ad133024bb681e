"""Instances: the running state of applets. An applet has one instance until the instance is
removed.

Source: interface document, 5.3. If both generations have a route, its answer is that of the later
one.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fieldbrook.actors.wire import CLEAR_LOG
from fieldbrook.core.errors import BadRequestError, FieldError, InstanceNotFoundError
from fieldbrook.core.model import REMOVED, STARTED, STOPPED, Applet
from fieldbrook.gateway.management.framework.binding import Paging, Sfid
from fieldbrook.gateway.management.framework.ownership import own_applet, own_instance, own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.projects.applets import Cache
from fieldbrook.gateway.management.routes.projects.replies.applets import (
    InstanceReply,
    instance_reply,
)


class Deploy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an instance."""

    cache: Cache | None = None


class FilterInstances(Paging, frozen=True, kw_only=True):
    """Filters of instances; without a filter, all of the project."""

    instance_ids: list[Sfid] = msgspec.field(default_factory=list, name="instanceID")
    applet_ids: list[Sfid] = msgspec.field(default_factory=list, name="appletID")
    states: list[Literal["CREATED", "STARTED", "STOPPED"]] = msgspec.field(
        default_factory=list, name="state"
    )

    def matches(self, applet: Applet) -> bool:
        """Return whether the instance of an applet passes every filter."""
        return (
            applet.state != REMOVED
            and (not self.instance_ids or applet.instance_id in self.instance_ids)
            and (not self.applet_ids or applet.applet_id in self.applet_ids)
            and (not self.states or applet.state in self.states)
        )


async def create_instance(call: Call[Deploy, None]) -> InstanceReply:
    """Start the instance of an applet; a new one is created if it was removed."""
    applet = own_applet(call)
    started: Applet = await call.context.registry.call(
        "create_instance", applet_id=applet.applet_id, cache=_cache(call)
    )
    return instance_reply(started)


async def redeploy_instance(call: Call[Deploy, None]) -> InstanceReply:
    """Restart an instance."""
    applet = own_instance(call)
    if applet.applet_id != call.id("appletID"):
        raise InstanceNotFoundError(instance=call.id("instanceID"))
    started: Applet = await call.context.registry.call(
        "restart_instance", instance_id=applet.instance_id, cache=_cache(call)
    )
    return instance_reply(started)


async def get_instance(call: Call[None, None]) -> InstanceReply:
    """One instance."""
    return instance_reply(own_instance(call))


async def get_instance_of_applet(call: Call[None, None]) -> InstanceReply:
    """The instance of an applet."""
    applet = own_applet(call)
    if applet.state == REMOVED:
        raise InstanceNotFoundError(instance=f"of applet {applet.applet_id}")
    return instance_reply(applet)


async def control_instance(call: Call[None, None]) -> None:
    """Start, stop, restart or remove an instance."""
    applet = own_instance(call)
    instance_id = applet.instance_id
    registry = call.context.registry
    match call.path["cmd"].upper():
        case "START":
            await registry.call("set_instance_state", instance_id=instance_id, state=STARTED)
        case "STOP" | "HUNGUP":
            await registry.call("set_instance_state", instance_id=instance_id, state=STOPPED)
        case "RESTART":
            await registry.call("restart_instance", instance_id=instance_id)
        case "REMOVE":
            await _remove(call, applet.project_id, [applet])
        case _:  # also CREATE, a command of the early interface that was never implemented
            reason = "expected one of START, STOP, HUNGUP, RESTART, REMOVE"
            raise BadRequestError(FieldError("cmd", reason, "path"))


async def remove_instance(call: Call[None, None]) -> None:
    """Remove an instance; its applet stays but handles no events."""
    applet = own_instance(call)
    await _remove(call, applet.project_id, [applet])


async def remove_instances(call: Call[None, FilterInstances]) -> None:
    """Remove the instances that match the filters; without a filter, all of the project."""
    project = own_project(call)
    applets = call.context.reader.applets(project.project_id)
    await _remove(call, project.project_id, [a for a in applets if call.query.matches(a)])


async def remove_log(call: Call[None, None]) -> None:
    """Delete the log rows of an instance."""
    applet = own_instance(call)
    if await call.context.flushed_store(applet.project_id) is None:
        return  # the project has never run
    await call.command(applet.project_id, CLEAR_LOG, [applet.instance_id])


def _cache(call: Call[Deploy, None]) -> tuple[str, str] | None:
    cache = call.body.cache
    return None if cache is None else cache.wire()


async def _remove(call: Call[Any, Any], project_id: int, applets: list[Applet]) -> None:
    await call.context.registry.call(
        "remove_instances",
        project_id=project_id,
        instance_ids=[applet.instance_id for applet in applets],
    )


_OF_APPLET, _ONE = "/deploy/applet/{appletID}", "/deploy/instance/{instanceID}"
ROUTES: tuple[Route, ...] = (
    Route("POST", _OF_APPLET, "CreateAndStartInstance", create_instance),
    Route("POST", f"{_OF_APPLET}/{{instanceID}}", "ReDeployInstance", redeploy_instance),
    Route("GET", _OF_APPLET, "GetInstanceByAppletID", get_instance_of_applet),
    Route("GET", _ONE, "GetInstanceByInstanceID", get_instance),
    Route("PUT", "/deploy/{instanceID}/{cmd}", "ControlInstance", control_instance),
    Route("DELETE", "/deploy/data/{instanceID}", "RemoveInstance", remove_instance),
    Route("DELETE", "/deploy/x/{projectName}", "BatchRemoveInstance", remove_instances),
    Route("DELETE", "/wasmlog/{instanceID}", "RemoveWasmLogByInstanceID", remove_log),
)
