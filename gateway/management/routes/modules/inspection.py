"""Inspection of a module before it is uploaded: the checks of an upload, and a description.

Nothing is stored: the module is checked in a folder of its own, which is removed afterwards.
"""

from __future__ import annotations

import hashlib
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fieldbrook.core.errors import (
    BadRequestError,
    FieldError,
    ModuleRefusedError,
    NodeError,
    QuotaExceededError,
    UploadFileDiskLimitError,
    UploadFileFailedError,
)
from fieldbrook.core.model import DEFAULT_HANDLER
from fieldbrook.gateway.management.framework.binding import MISSING
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.framework.temporary_files import new_path, write_private
from fieldbrook.gateway.management.routes.projects.uploads import (
    check_size,
    compile_file,
    require_quota,
    require_room,
)
from fieldbrook.system.confined import Bounds, ConfinedError, run_confined
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.description import ModuleDescription

_BOUNDS = Bounds(cpu_s=20, timeout_s=40.0, address_bytes=2 << 30, file_bytes=1 << 20)


class ImportReply(msgspec.Struct, frozen=True, kw_only=True):
    """An import. `type` is there for functions: `(i32, i32) -> (i32)`."""

    module: str
    name: str
    kind: str
    type: str


class ExportReply(msgspec.Struct, frozen=True, kw_only=True):
    """An export. `handler` says that a strategy can name it."""

    name: str
    kind: str
    type: str
    handler: bool


class ModuleInspection(msgspec.Struct, frozen=True, kw_only=True):
    """A module as the node sees it; `size` is in bytes.

    `problems` say why the node would refuse it; without any it can be uploaded. `warnings` say
    what may not work as expected. At most 1,000 imports and 1,000 exports are listed, none for a
    file that is not a valid module. `runtime` and `producers` are what the toolchain left in it.
    """

    filename: str
    size: int
    sha256: str
    md5: str
    handlers: list[str]
    imports: list[ImportReply]
    exports: list[ExportReply]
    runtime: str
    producers: dict[str, list[str]]
    problems: list[str]
    warnings: list[str]


async def inspect_module(call: Call[None, None]) -> ModuleInspection:
    """Check a module as an upload does, and describe it; nothing is stored."""
    if not call.form.file:
        raise BadRequestError(FieldError("file", MISSING, "body"))
    owner = call.account.account_id
    return await call.workers.uploads.run(owner, partial(_inspect, call))


def _inspect(call: Call[Any, Any]) -> ModuleInspection:
    """Inspect the file of a call; runs in a thread."""
    context, content = call.context, call.form.file or b""
    folder = new_path(context.uploads_dir, context.part, ".inspected")
    try:
        folder.mkdir(mode=0o700)
        try:
            write_private(folder / "module", content)
            handlers, problems = _check(call, folder, content)
            description = _describe(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise UploadFileFailedError(reason=str(error.strerror)) from error
    found = set(handlers)
    return ModuleInspection(
        filename=call.form.filename,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        md5=hashlib.md5(content, usedforsecurity=False).hexdigest(),
        handlers=handlers,
        imports=[
            ImportReply(module=each.module, name=each.name, kind=each.kind, type=each.type)
            for each in description.imports
        ],
        exports=[
            ExportReply(name=each.name, kind=each.kind, type=each.type, handler=each.name in found)
            for each in description.exports
        ],
        runtime=description.runtime,
        producers=dict(description.producers),
        problems=problems,
        warnings=_warnings(handlers, description) if not problems else [],
    )


def _check(call: Call[Any, Any], folder: Path, content: bytes) -> tuple[list[str], list[str]]:
    """Return the handlers of a module, and why an upload of it would be refused."""
    context, owner = call.context, call.account.account_id
    digest = hashlib.sha256(content).digest()
    handlers: list[str] = []
    problems: list[str] = []
    for check in (
        partial(check_size, content, context),
        partial(require_quota, context, owner, [(digest, len(content))]),
        partial(require_room, len(content), context),
    ):
        try:
            check()
        except NodeError as error:
            problems.append(f"{error.msg}: {error.desc}")
    try:
        handlers = compile_file(folder / "module", "", context, owner, folder).handlers
    except (QuotaExceededError, UploadFileDiskLimitError) as error:
        if not problems:  # otherwise the reason is already in the list
            problems.append(f"{error.msg}: {error.desc}")
    except ModuleRefusedError as error:
        problems += error.desc.split("; ")
    return handlers, problems


def _describe(folder: Path) -> ModuleDescription:
    """Return the description of the module; an empty one if the module is not valid."""
    module = "fieldbrook.wasm.module.description"
    try:
        output = run_confined(module, [str(folder / "module")], _BOUNDS, folder)
    except ConfinedError:
        return ModuleDescription([], [])
    found = msgspec.json.decode(output, type=ModuleDescription | None)
    return found or ModuleDescription([], [])


def _warnings(handlers: list[str], description: ModuleDescription) -> list[str]:
    exported = {each.name for each in description.exports}
    imported = {(each.module, each.name) for each in description.imports}
    found = []
    if DEFAULT_HANDLER not in handlers:
        found.append(
            f"it exports no handler {DEFAULT_HANDLER}: without strategies it handles no event"
        )
    if abi.ALLOC not in exported:
        found.append("it exports no alloc: the host cannot hand payloads and values to it")
    if any((each.module, each.name) in imported for each in (abi.WS_GET_SQL_DB, abi.WS_SET_SQL_DB)):
        found.append("it uses SQL: the project needs tables, and events share no instance")
    return found


ROUTES: tuple[Route, ...] = (
    Route("POST", "/resource/inspect", "InspectModule", inspect_module, upload=True, reads=True),
)
