"""Export and import of projects as files.

Source: ours; the original interface has no such routes.
"""

from __future__ import annotations

import asyncio
import shutil
from functools import partial

import msgspec

from fieldbrook.core.errors import (
    BadRequestError,
    FieldError,
    NodeError,
    OutcomeUnknownError,
    ProjectNameConflictError,
    UploadFileFailedError,
)
from fieldbrook.core.model import Project
from fieldbrook.gateway.management.framework import warnings
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Download, Form, Route
from fieldbrook.gateway.management.framework.temporary_files import new_path, write_private
from fieldbrook.gateway.management.routes.projects.project_files import Contents, ProjectFile
from fieldbrook.gateway.management.routes.projects.projects import (
    name_errors,
    with_configs,
)
from fieldbrook.gateway.management.routes.projects.replies.projects import ImportedProjectReply
from fieldbrook.gateway.management.routes.projects.strategies import modules_by_applet
from fieldbrook.gateway.management.routes.projects.uploads import (
    compile_file,
    require_quota,
    require_room,
)
from fieldbrook.security.access_keys import Group
from fieldbrook.storage.backup.transfer import ReadLimits, collect, export
from fieldbrook.storage.project.store import store_path
from fieldbrook.storage.registry.service import Module
from fieldbrook.storage.registry.usage import stored_bytes_in

_UNPACKED_SHARE = 20  # limit of an unpacked archive, as a multiple of the upload limit

_EXPORT_SHARE = 3  # disk space in multiples of the project's size: copy, extract, file


class ExportProject(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the file besides the definitions: `data` adds the data that handlers
    stored, `tokens` the tokens of publishers. A file with tokens is a secret."""

    data: bool = True
    tokens: bool = False


class ImportProject(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is the name of the new project, by default the one in the file. With `newTokens`,
    publishers get new tokens instead of those in the file."""

    name: str = ""
    new_tokens: bool = msgspec.field(default=False, name="newTokens")


async def export_project(call: Call[ExportProject, None]) -> Download:
    """Export a project as a file for `ImportProject`, on this node or on another."""
    project, context = own_project(call), call.context
    with context.reader.snapshot() as registry:
        exported = collect(registry, project, with_tokens=call.body.tokens)
    store = await context.flushed_store(project.project_id) if call.body.data else None
    copy = None if store is None else store.copy
    target = new_path(context.uploads_dir, context.part, ".project")
    size = sum(resource.size for resource in exported.resources)
    if copy is not None:
        size += stored_bytes_in(context.projects_dir)(project.project_id)

    def write() -> None:
        try:
            require_room(_EXPORT_SHARE * size, context)
        except OSError as error:
            raise UploadFileFailedError(reason=str(error.strerror)) from error
        export(exported, context.modules_dir, copy, target)

    # Refuse a download above the limit before its file is written.
    with call.workers.downloads.hold_for(call.account):
        await call.workers.uploads.run(call.account.account_id, write)
    return Download(target, f"{project.name}.fieldbrook", call.account, temporary=True)


async def import_project(call: Call[ImportProject, None]) -> ImportedProjectReply:
    """Create a project from a file of `ExportProject`, with new ids of this node. Either all of
    it is created or nothing."""
    context, run = call.context, partial(call.workers.uploads.run, call.account.account_id)
    file = ProjectFile(new_path(context.uploads_dir, context.part, ".parts"))
    try:
        contents = await run(partial(_read, file, call.form, context))
        name = _name(call, contents)
        _require_quota(call, file, contents)
        if contents.cron_jobs > context.cron_jobs_limit:
            reason = f"{contents.cron_jobs} cron jobs, the limit is {context.cron_jobs_limit}"
            raise BadRequestError(FieldError("file", reason, "body"))
        modules = await _compile(call, file, contents)
        project = await _import(call, file, contents, name, modules)
    finally:
        # In a thread, because there may be thousands of files.
        await asyncio.to_thread(shutil.rmtree, file.folder, ignore_errors=True)
    with context.reader.snapshot() as registry:
        strategies = registry.strategies(project.project_id)
        found = list(warnings.dead_strategies(strategies, modules_by_applet(registry, strategies)))
    if contents.dedicated and not project.dedicated:
        found += [warnings.SHARED_WORKER]
    made = msgspec.structs.asdict(with_configs(call, project))
    return ImportedProjectReply(**made, warnings=warnings.listed(found))


async def _compile(
    call: Call[ImportProject, None], file: ProjectFile, contents: Contents
) -> list[Module]:
    """Compile the modules of a file one after the other; each must fit into the space that the
    others have left."""
    run = partial(call.workers.uploads.run, call.account.account_id)
    sizes = {sha256: file.module(sha256).stat().st_size for sha256 in contents.modules}
    adding, modules = sum(sizes.values()), list[Module]()
    for sha256, filename in sorted(contents.modules.items()):
        module = await run(
            partial(
                compile_file,
                *(file.module(sha256), filename, call.context, call.account.account_id),
                other_bytes=adding - sizes[sha256],
            )
        )
        adding += module.compiled_size
        modules.append(module)
    return modules


async def _import(
    call: Call[ImportProject, None],
    file: ProjectFile,
    contents: Contents,
    name: str,
    modules: list[Module],
) -> Project:
    context, run = call.context, partial(call.workers.uploads.run, call.account.account_id)
    count = 1 + len(contents.applets)
    project_id, *applet_ids = await context.registry.call("reserve_ids", count=count)
    store = store_path(context.projects_dir, project_id)
    ids = dict(zip(contents.applets, applet_ids, strict=True))
    built = await run(partial(file.build, store, ids, context.project_map_bytes))
    try:
        if built:
            # If the registry refuses the project, nobody reads its store in the cluster.
            await run(partial(context.put_store, project_id))
        project: Project = await context.registry.call(
            "import_project",
            account_id=call.account.account_id,
            name=name,
            exported=await run(file.records),
            modules=[msgspec.to_builtins(module) for module in modules],
            project_id=project_id,
            applet_ids=applet_ids,
            new_tokens=call.body.new_tokens,
        )
    except OutcomeUnknownError:
        raise  # the project may exist; if not, the registry removes its store
    except NodeError:
        shutil.rmtree(store, ignore_errors=True)
        raise
    if built and not (store / "data.mdb").exists():
        # The registry restarted meanwhile and removed the store, because the project did not exist
        # yet.
        await context.registry.call("remove_project", project_id=project_id)
        raise OutcomeUnknownError(what="the registry restarted during the import")
    return project


def _read(file: ProjectFile, form: Form, context: ManagementContext) -> Contents:
    content = form.file or b""
    try:
        require_room(len(content), context)
        file.folder.mkdir(mode=0o700)
        write_private(file.archive, content)
    except OSError as error:
        raise UploadFileFailedError(reason=str(error.strerror)) from error
    limit = context.upload_limit_bytes
    limits = ReadLimits(_UNPACKED_SHARE * limit, limit, context.disk_reserve_bytes)
    return file.read(limits)


def _name(call: Call[ImportProject, None], contents: Contents) -> str:
    """Return the name of the new project, checked before any module is compiled.

    Raises:
        BadRequestError: the name is not allowed.
        ProjectNameConflictError: the name is taken.
    """
    name = call.body.name or contents.name
    errors = name_errors(name, "info.name")
    if errors:
        raise BadRequestError(*errors)
    if call.context.reader.project_named(name):
        raise ProjectNameConflictError(what=f"project {name}")
    return name


def _require_quota(call: Call[ImportProject, None], file: ProjectFile, contents: Contents) -> None:
    """Check the quotas before any module is compiled; the registry checks them again."""
    sizes = [
        (bytes.fromhex(sha256), file.module(sha256).stat().st_size) for sha256 in contents.modules
    ]
    require_quota(call.context, call.account.account_id, sizes)


ROUTES: tuple[Route, ...] = (
    # Both routes give access to everything that belongs to a project, including publishers and
    # data, so an access key needs rights on the group of the account.
    Route(
        "POST",
        "/project/x/{projectName}/export",
        "ExportProject",
        export_project,
        group=Group.ACCOUNT,
    ),
    Route(
        "POST", "/project/import", "ImportProject", import_project, upload=True, group=Group.ACCOUNT
    ),
)
