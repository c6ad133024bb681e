"""Applets: uploading modules, and the instances they run in.

An upload is compiled before the registry hears of it, so a module that cannot run is
refused with the compiler's or the linker's reason and leaves nothing behind.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from fieldbrook.errors import (
    BadRequestError,
    FieldError,
    HandlerNotExportedError,
    UnknownDeployCommandError,
    UploadFileFailedError,
    UploadFileMd5UnmatchedError,
    UploadFileSizeLimitError,
)
from fieldbrook.gateway.management.binding import MISSING, Paging, Sfid, Text
from fieldbrook.gateway.management.context import ManagementContext
from fieldbrook.gateway.management.ownership import (
    own_applet,
    own_applet_in,
    own_instance,
    own_project,
)
from fieldbrook.gateway.management.route import Auth, Call, Form, Route
from fieldbrook.gateway.management.views import (
    Json,
    applet_json,
    deployed_json,
    instance_json,
    page,
    strategy_json,
)
from fieldbrook.model import DEFAULT_EVENT_TYPE, DEFAULT_HANDLER, STARTED, STOPPED, Applet
from fieldbrook.storage.registry import Module
from fieldbrook.wasm.compile import compile_in_child

_COMPILE_LIMIT_S = 60.0
_NAMES_LIMIT = 20  # handlers named in a refusal


class RuleDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy of the applet that is being uploaded."""

    event_type: Text = msgspec.field(name="eventType")
    handler: Text


class AppletInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`info` of a new applet. Without strategies it gets `DEFAULT` -> `start`."""

    applet_name: Text = msgspec.field(name="appletName")
    wasm_name: Text = msgspec.field(name="wasmName", default="")
    wasm_md5: Text = msgspec.field(name="wasmMd5", default="")
    strategies: list[RuleDraft] = msgspec.field(default_factory=list)
    isolation: Literal["EVENT", "BATCH"] = "EVENT"


class AppletChange(msgspec.Struct, frozen=True, kw_only=True):
    """`info` of a changed applet; strategies replace those it has."""

    applet_name: Text = msgspec.field(name="appletName", default="")
    wasm_name: Text = msgspec.field(name="wasmName", default="")
    wasm_md5: Text = msgspec.field(name="wasmMd5", default="")
    strategies: list[RuleDraft] = msgspec.field(default_factory=list)
    isolation: Literal["EVENT", "BATCH"] | None = None


class ListApplets(Paging, frozen=True, kw_only=True):
    """Filters: ids, exact names, and a part of the name."""

    ids: list[Sfid] = msgspec.field(default_factory=list, name="id")
    applet_ids: list[Sfid] = msgspec.field(default_factory=list, name="appletID")
    names: list[str] = msgspec.field(default_factory=list)
    name: str = ""


async def create_applet(call: Call[AppletInfo, None]) -> Json:
    """Upload a module as a new applet of a project and start it."""
    project, info = own_project(call), call.body
    if call.form.file is None:
        raise BadRequestError(FieldError("file", MISSING, "body"))
    module = await _compile(call, info.wasm_md5)
    deployed = await call.context.registry.call(
        "create_applet",
        project_id=project.project_id,
        account_id=project.account_id,
        name=info.applet_name,
        wasm_name=info.wasm_name or module.filename,
        filename=module.filename,
        sha256=module.sha256,
        md5=module.md5,
        size=module.size,
        handlers=module.handlers,
        strategies=_pairs(info.strategies) or [_default_rule(module.handlers)],
        isolation=info.isolation,
    )
    return deployed_json(deployed.applet, deployed.resource, deployed.strategies)


async def update_applet(call: Call[AppletChange, None]) -> Json:
    """Give an applet another module, name or strategies."""
    applet, change = own_applet(call, call.id("appletID")), call.body
    if call.form.file is None and call.form.info is None:
        raise BadRequestError(FieldError("info", MISSING, "body"))
    module = None if call.form.file is None else await _compile(call, change.wasm_md5)
    deployed = await call.context.registry.call(
        "update_applet",
        applet_id=applet.applet_id,
        name=change.applet_name or None,
        wasm_name=change.wasm_name or None,
        module=None if module is None else msgspec.to_builtins(module),
        strategies=_pairs(change.strategies) or None,
        isolation=change.isolation,
    )
    return deployed_json(deployed.applet, deployed.resource, deployed.strategies)


async def list_applets(call: Call[None, ListApplets]) -> Json:
    """The applets of a project; `hints` is what the seed era called `total`."""
    project = own_project(call)
    applets = call.context.reader.applets(project.project_id)
    found = [applet for applet in applets if _fits(applet, call.query)]
    data = [
        {**applet_json(applet), "instances": [instance_json(applet)]}
        for applet in page(found, call.query)
    ]
    return {"data": data, "total": len(found), "hints": len(found)}


async def get_applet(call: Call[None, None]) -> Json:
    """One applet with its instance and strategies."""
    applet = own_applet_in(call, own_project(call), call.id("appletID"))
    strategies = call.context.reader.strategies_of_applet(applet.applet_id)
    return {
        **applet_json(applet),
        "instances": [instance_json(applet)],
        "strategies": [strategy_json(strategy) for strategy in strategies],
    }


async def remove_applet(call: Call[None, None]) -> None:
    """Remove an applet, its instance and its strategies."""
    applet = own_applet(call, call.id("appletID"))
    await call.context.registry.call("remove_applet", applet_id=applet.applet_id)


async def get_instance(call: Call[None, None]) -> Json:
    """One instance."""
    return instance_json(own_instance(call))


async def list_instances(call: Call[None, None]) -> list[Json]:
    """The instances of an applet: always one."""
    return [instance_json(own_applet(call, call.id("appletID")))]


async def control_instance(call: Call[None, None]) -> None:
    """Start, stop or restart an instance."""
    instance_id = own_instance(call).instance_id
    registry = call.context.registry
    match call.path["cmd"].upper():
        case "START":
            await registry.call("set_instance_state", instance_id=instance_id, state=STARTED)
        case "STOP" | "HUNGUP":
            await registry.call("set_instance_state", instance_id=instance_id, state=STOPPED)
        case "RESTART":
            await registry.call("restart_instance", instance_id=instance_id)
        case "CREATE" | "REMOVE" as known:
            raise UnknownDeployCommandError(command=known)
        case _:
            reason = "expected one of START, STOP, HUNGUP, RESTART"
            raise BadRequestError(FieldError("cmd", reason, "path"))


async def _compile(call: Call[Any, None], stated_md5: str) -> Module:
    form, context = call.form, call.context
    return await call.workers.uploads.run(lambda: compile_upload(form, stated_md5, context))


def compile_upload(form: Form, stated_md5: str, context: ManagementContext) -> Module:
    """Check and compile an uploaded file; runs in a thread.

    Raises:
        UploadFileSizeLimitError: it is larger than a module may be.
        UploadFileMd5UnmatchedError: it is not the file the client says it sent.
        ModuleRefusedError: it is no module, or one that cannot run here.
        UploadFileFailedError: the disk did not take it.
    """
    content = form.file or b""
    if len(content) > context.upload_limit_bytes:
        raise UploadFileSizeLimitError(size=len(content), limit_bytes=context.upload_limit_bytes)
    upload = context.uploads_dir / f"{secrets.token_hex(16)}.wasm"
    try:
        context.modules_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(upload, content)
        report = compile_in_child(upload, context.modules_dir, context.limits, _COMPILE_LIMIT_S)
    except OSError as error:
        raise UploadFileFailedError(reason=str(error.strerror)) from error
    finally:
        upload.unlink(missing_ok=True)
    if stated_md5 and not hmac.compare_digest(stated_md5.lower(), report.md5):
        raise UploadFileMd5UnmatchedError(actual=report.md5, stated=stated_md5)
    return Module(form.filename, report.sha256, report.md5, report.size, list(report.handlers))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _default_rule(handlers: Sequence[str]) -> tuple[str, str]:
    if DEFAULT_HANDLER not in handlers:
        raise HandlerNotExportedError(
            field="strategies",
            handler=DEFAULT_HANDLER,
            available=", ".join(handlers[:_NAMES_LIMIT]) or "none",
        )
    return DEFAULT_EVENT_TYPE, DEFAULT_HANDLER


def _pairs(drafts: Sequence[RuleDraft]) -> list[tuple[str, str]]:
    return [(draft.event_type, draft.handler) for draft in drafts]


def _fits(applet: Applet, query: ListApplets) -> bool:
    ids = {*query.ids, *query.applet_ids}
    return (
        (not ids or applet.applet_id in ids)
        and (not query.names or applet.name in query.names)
        and query.name in applet.name
    )


ROUTES: tuple[Route[Any, Any], ...] = (
    Route(
        "POST",
        "/applet/{projectName}",
        "CreateApplet",
        Auth.ACCOUNT,
        create_applet,
        body=AppletInfo,
        upload=True,
    ),
    Route(
        "GET",
        "/applet/{projectName}",
        "ListApplet",
        Auth.ACCOUNT,
        list_applets,
        query=ListApplets,
    ),
    Route("GET", "/applet/{projectName}/{appletID}", "GetApplet", Auth.ACCOUNT, get_applet),
    Route(
        "PUT",
        "/applet/{appletID}",
        "UpdateApplet",
        Auth.ACCOUNT,
        update_applet,
        body=AppletChange,
        upload=True,
    ),
    Route("DELETE", "/applet/{appletID}", "RemoveApplet", Auth.ACCOUNT, remove_applet),
    Route(
        "GET",
        "/deploy/instance/{instanceID}",
        "GetInstanceByInstanceID",
        Auth.ACCOUNT,
        get_instance,
    ),
    Route(
        "GET", "/deploy/applet/{appletID}", "GetInstanceByAppletID", Auth.ACCOUNT, list_instances
    ),
    Route("PUT", "/deploy/{instanceID}/{cmd}", "ControlInstance", Auth.ACCOUNT, control_instance),
)
