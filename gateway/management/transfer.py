"""Projects that go from node to node as a file.

Source: ours; the interface has no such routes.
"""

from __future__ import annotations

import secrets
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fieldbrook.access_keys import Group
from fieldbrook.errors import (
    BadRequestError,
    FieldError,
    NodeError,
    OutcomeUnknownError,
    ProjectNameConflictError,
    StoreError,
    UploadFileFailedError,
)
from fieldbrook.gateway.management import contract_abis
from fieldbrook.gateway.management.context import ManagementContext
from fieldbrook.gateway.management.ownership import own_project
from fieldbrook.gateway.management.projects import name_errors, shown
from fieldbrook.gateway.management.route import Auth, Call, Download, Form, Route
from fieldbrook.gateway.management.uploads import compile_upload, require_quota
from fieldbrook.gateway.management.views import Json
from fieldbrook.model import Project
from fieldbrook.storage.codec import encode_record
from fieldbrook.storage.project_store import store_path
from fieldbrook.storage.registry import Module
from fieldbrook.storage.transfer import Exported, Unpacked, build_store, collect, export, read

_UNPACKED_SHARE = 20  # an archive may unpack to so many times what an upload may have


class ExportProject(msgspec.Struct, frozen=True, kw_only=True):
    """What the file holds besides the definitions: what handlers stored, and the publishers'
    tokens, which make the file a secret."""

    data: bool = True
    tokens: bool = False


class ImportProject(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is what the project is called here, by default as it was; `newTokens` gives its
    publishers other tokens than those in the file."""

    name: str = ""
    new_tokens: bool = msgspec.field(default=False, name="newTokens")


async def export_project(call: Call[ExportProject, None]) -> Download:
    """A project as a file that `ImportProject` takes, in this node or in another."""
    project, context = own_project(call), call.context
    with context.reader.snapshot() as registry:
        exported = collect(registry, project, with_tokens=call.body.tokens)
    store = context.store_reader(project.project_id) if call.body.data else None
    copy = None if store is None else store.copy
    target = _passing(context, ".project")
    await call.workers.uploads.run(partial(export, exported, context.modules_dir, copy, target))
    return Download(target, f"{project.name}.fieldbrook", passing=True)


async def import_project(call: Call[ImportProject, None]) -> Json:
    """Make a project from a file of `ExportProject`: all of it, under ids of this node, or
    nothing."""
    context, folder = call.context, _passing(call.context, ".parts")
    try:
        unpacked = await call.workers.uploads.run(partial(_unpack, call.form, folder, context))
        name = _name(call, unpacked.exported)
        _require_quota(call, unpacked)
        modules = [
            await call.workers.uploads.run(partial(_compile, unpacked, sha256, context))
            for sha256 in sorted({resource.sha256 for resource in unpacked.exported.resources})
        ]
        project = await _import(call, unpacked, name, modules)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return shown(call, project)


async def _import(
    call: Call[ImportProject, None], unpacked: Unpacked, name: str, modules: list[Module]
) -> Project:
    exported, context = unpacked.exported, call.context
    count = 1 + len(exported.applets)
    project_id, *applet_ids = await context.registry.call("reserve_ids", count=count)
    store = store_path(context.projects_dir, project_id)
    ids = dict(zip((a.applet_id for a in exported.applets), applet_ids, strict=True))
    build = partial(build_store, unpacked, store, ids, context.project_map_bytes)
    built = await call.workers.uploads.run(build)
    try:
        project: Project = await context.registry.call(
            "import_project",
            account_id=call.account.account_id,
            name=name,
            exported=encode_record(exported),
            modules=[msgspec.to_builtins(module) for module in modules],
            project_id=project_id,
            applet_ids=applet_ids,
            new_tokens=call.body.new_tokens,
        )
    except OutcomeUnknownError:
        raise  # the project may be there; if it is not, the registry removes its store
    except NodeError:
        shutil.rmtree(store, ignore_errors=True)
        raise
    if built and not (store / "data.mdb").exists():
        # The registry died meanwhile and swept what it did not know of.
        await context.registry.call("remove_project", project_id=project_id)
        raise OutcomeUnknownError(what="the registry was started again meanwhile")
    return project


def _passing(context: ManagementContext, suffix: str) -> Path:
    context.uploads_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return context.uploads_dir / f"{secrets.token_hex(16)}{suffix}"


def _unpack(form: Form, folder: Path, context: ManagementContext) -> Unpacked:
    archive = folder / "archive"
    try:
        folder.mkdir(mode=0o700)
        archive.write_bytes(form.file or b"")
    except OSError as error:
        raise UploadFileFailedError(reason=str(error.strerror)) from error
    limit = _UNPACKED_SHARE * context.upload_limit_bytes
    try:
        unpacked = read(archive, folder / "unpacked", limit)
    except StoreError as error:
        reason = str(error).removeprefix(f"{archive}: ")
        raise BadRequestError(FieldError("file", reason, "body")) from None
    if reason := contract_abis.problem_of(unpacked.exported.contract_abis):
        raise BadRequestError(FieldError("file", reason, "body"))
    return unpacked


def _name(call: Call[ImportProject, None], exported: Exported) -> str:
    """What the project is to be called; said before anything is compiled."""
    name = call.body.name or exported.project.name
    errors = name_errors(name)
    if errors:
        raise BadRequestError(*errors)
    if call.context.reader.project_named(name):
        raise ProjectNameConflictError(what=f"project {name}")
    return name


def _require_quota(call: Call[ImportProject, None], unpacked: Unpacked) -> None:
    """Refuse what the registry would refuse before anything of it is compiled."""
    contents = [
        (bytes.fromhex(resource.sha256), unpacked.module(resource).stat().st_size)
        for resource in unpacked.exported.resources
    ]
    require_quota(call.context, call.account.account_id, contents)


def _compile(unpacked: Unpacked, sha256: str, context: ManagementContext) -> Module:
    resource = next(r for r in unpacked.exported.resources if r.sha256 == sha256)
    content = unpacked.module(resource).read_bytes()
    return compile_upload(Form(content, resource.filename, None), "", context)


ROUTES: tuple[Route[Any, Any], ...] = (
    # Both reach all that belongs to a project, its publishers and data too.
    Route(
        "POST",
        "/project/x/{projectName}/export",
        "ExportProject",
        Auth.ACCOUNT,
        export_project,
        body=ExportProject,
        group=Group.ACCOUNT,
    ),
    Route(
        "POST",
        "/project/import",
        "ImportProject",
        Auth.ACCOUNT,
        import_project,
        body=ImportProject,
        upload=True,
        group=Group.ACCOUNT,
    ),
)
