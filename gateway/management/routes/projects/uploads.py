"""Uploaded modules are compiled before the registry stores them.

Therefore a module that cannot run is refused with the reason of the compiler or the linker, and
nothing of it is kept. A module that replaces another one is ready to run at once.
"""

from __future__ import annotations

import hashlib
import hmac
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fieldbrook.core.errors import (
    BadRequestError,
    FieldError,
    UploadFileDiskLimitError,
    UploadFileFailedError,
    UploadFileMd5UnmatchedError,
    UploadFileSizeLimitError,
)
from fieldbrook.core.quotas import BYTES, MODULES, exceeded
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.framework.route import Call, Form
from fieldbrook.gateway.management.framework.temporary_files import new_path, write_private
from fieldbrook.storage.registry.service import Module
from fieldbrook.storage.registry.usage import stored_bytes_in
from fieldbrook.wasm.engine.compile import CompiledTooLargeError, compile_in_child
from fieldbrook.wasm.module.sections import not_wasm

_COMPILE_LIMIT_S = 60.0


async def compiled(call: Call[Any, Any], stated_md5: str, owner_id: int) -> Module:
    """Compile the uploaded file of a call for an account; see `compile_upload`.

    Raises:
        QuotaExceededError: the module would exceed a quota of the account. The registry checks
            this too, but only when the module's files are on the disk, where they stay for a
            while.
    """
    form, context = call.form, call.context
    content = form.file or b""
    run = partial(call.workers.uploads.run, call.account.account_id)
    digest = await run(lambda: hashlib.sha256(content).digest())
    require_quota(context, owner_id, [(digest, len(content))])
    return await run(lambda: compile_upload(form, stated_md5, context, owner_id))


def compile_upload(
    form: Form, stated_md5: str, context: ManagementContext, owner_id: int
) -> Module:
    """Check and compile an uploaded file for an account; runs in a thread.

    Raises:
        BadRequestError: the file is not a module.
        UploadFileSizeLimitError: the file is larger than a module may be.
        UploadFileMd5UnmatchedError: the MD5 sum of the file is not the stated one.
        UploadFileDiskLimitError: the disk has too little free space.
        QuotaExceededError: the compiled module would exceed the account's quota of bytes.
        ModuleRefusedError: the module cannot run here.
        UploadFileFailedError: the file could not be written.
    """
    content = form.file or b""
    check_size(content, context)
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if stated_md5 and not hmac.compare_digest(stated_md5.lower().encode(), md5.encode()):
        raise UploadFileMd5UnmatchedError(actual=md5, stated=stated_md5)
    if reason := not_wasm(content):
        raise BadRequestError(FieldError("file", f"{form.filename[:128]} is {reason}", "body"))
    try:
        upload = new_path(context.uploads_dir, context.part, ".wasm")
        try:
            require_room(len(content), context)
            write_private(upload, content)
            return compile_file(upload, form.filename, context, owner_id)
        finally:
            upload.unlink(missing_ok=True)
    except OSError as error:
        raise UploadFileFailedError(reason=str(error.strerror)) from error


def check_size(content: bytes, context: ManagementContext) -> None:
    """Check that a file is not larger than a module may be.

    Raises:
        UploadFileSizeLimitError: the file is larger.
    """
    if len(content) > context.upload_limit_bytes:
        raise UploadFileSizeLimitError(size=len(content), limit_bytes=context.upload_limit_bytes)


def require_quota(
    context: ManagementContext, owner_id: int, contents: Sequence[tuple[bytes, int]]
) -> None:
    """Check that an account may store more modules.

    Args:
        contents: the SHA-256 and the size in bytes of each module.

    Raises:
        QuotaExceededError: the modules would exceed a quota of the account.
    """
    reader, account = context.reader, context.reader.account(owner_id)
    if account is None:
        return
    known = reader.resource_with_content
    new = {digest: size for digest, size in contents if known(owner_id, digest) is None}
    stored = stored_bytes_in(context.projects_dir)
    for name, adding in ((MODULES, len(new)), (BYTES, sum(new.values()))):
        limit = context.quotas.limit(account, name)
        used = 0 if limit is None else reader.usage(owner_id, name, stored)
        if limit is not None and adding and used + adding > limit:
            raise exceeded(account, name, limit, used, adding)


def compile_file(
    source: Path,
    filename: str,
    context: ManagementContext,
    owner_id: int,
    outdir: Path | None = None,
    other_bytes: int = 0,
) -> Module:
    """Check and compile a file for an account in a child process; call it in a thread.

    The result is written to the folder of modules, or to another existing folder `outdir`. It is
    not written if the disk or the account's quota of bytes has no room for it.

    Args:
        source: the file.
        filename: the name of the file at the client.
        context: the gateway's context.
        owner_id: the account whose quota applies.
        outdir: the folder of the result.
        other_bytes: the bytes that the same request adds to the account besides this module.

    Raises:
        ModuleRefusedError: the file is no module, or the module cannot run here.
        QuotaExceededError: the account has no room for the compiled module.
        UploadFileDiskLimitError: the disk has no room for it.
        UploadFileFailedError: the compiled module could not be written.
    """
    try:
        if outdir is None:
            outdir = context.modules_dir
            outdir.mkdir(mode=0o700, parents=True, exist_ok=True)
        size = source.stat().st_size
        free, reserve = shutil.disk_usage(outdir).free, context.disk_reserve_bytes
        room = min(free - reserve - size, _quota_room(context, owner_id, source) - other_bytes)
        try:
            report = compile_in_child(
                source, outdir, context.limits, _COMPILE_LIMIT_S, room_bytes=room
            )
        except CompiledTooLargeError as error:
            adding = size + error.size + other_bytes
            require_quota(context, owner_id, [(_digest(source), adding)])
            raise UploadFileDiskLimitError(size=adding, free=free, reserve=reserve) from error
    except OSError as error:
        raise UploadFileFailedError(reason=str(error.strerror)) from error
    handlers = list(report.handlers)
    return Module(filename, report.sha256, report.md5, report.size, handlers, report.compiled_size)


def _quota_room(context: ManagementContext, owner_id: int, source: Path) -> int:
    """Return the bytes that an account may still add, in addition to a module and its compiled
    form."""
    account = context.reader.account(owner_id)
    limit = None if account is None else context.quotas.limit(account, BYTES)
    known = context.reader.resource_with_content
    if limit is None or known(owner_id, _digest(source)) is not None:
        return 1 << 62
    stored = stored_bytes_in(context.projects_dir)
    return limit - context.reader.usage(owner_id, BYTES, stored) - source.stat().st_size


def _digest(source: Path) -> bytes:
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def require_room(size: int, context: ManagementContext) -> None:
    """Check that the disk has space for `size` bytes in addition to the reserve of the settings.

    Raises:
        UploadFileDiskLimitError: fewer bytes than the reserve would stay free.
        OSError: the free space cannot be determined.
    """
    context.modules_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    free, reserve = shutil.disk_usage(context.modules_dir).free, context.disk_reserve_bytes
    if free < size + reserve:
        raise UploadFileDiskLimitError(size=size, free=free, reserve=reserve)
