"""Read an imported project in a child process with resource limits.

Any account may import a file, so the file is untrusted and the gateway does not parse it. The
child unpacks it, validates the records and builds the store. It reports to the gateway the data
that the registry needs.

The child runs `main(["read", ARCHIVE, FOLDER, UNPACKED_BYTES, MODULE_BYTES, RESERVE_BYTES])` or
`main(["build", FOLDER, TARGET, MAP_BYTES])`; "build" reads the new ids of the applets from its
standard input. Both print one line of JSON: the result, `{"refused": reason}` if the file is
wrong, or `{"failed": [name, details]}` if the node has a problem.
"""

from __future__ import annotations

import errno
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fieldbrook.core.errors import (
    BadRequestError,
    FieldError,
    NodeError,
    StoreError,
    UploadFileFailedError,
    from_wire,
    to_wire,
)
from fieldbrook.gateway.management.routes.projects import imported
from fieldbrook.storage.backup.transfer import (
    MODULES,
    RECORDS,
    ReadLimits,
    build_store,
    read,
    read_records,
)
from fieldbrook.system.confined import Bounds, ConfinedError, run_confined

_MODULE = "fieldbrook.gateway.management.routes.projects.project_files"
_CPU_S, _TIMEOUT_S = 60, 120.0
_MEMORY_BYTES = 512 << 20
_NAME_LIMIT = 255  # for a module's file name, as in most file systems
_OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES})
_T = TypeVar("_T")
_REFUSED, _FAILED = "refused", "failed"


class Contents(msgspec.Struct, frozen=True):
    """The summary of a project's file for the gateway.

    It contains the name of the project, the old ids of its applets, the number of its cron jobs,
    the file names of its modules by SHA-256, and whether the project had a worker of its own.
    """

    name: str
    applets: list[int]
    cron_jobs: int
    modules: dict[str, str]
    dedicated: bool


class _Built(msgspec.Struct, frozen=True):
    built: bool


class ProjectFile(msgspec.Struct, frozen=True):
    """The file of a project during its import.

    Only this import uses `folder`; the caller removes it afterwards.
    """

    folder: Path

    @property
    def archive(self) -> Path:
        """The path of the uploaded file."""
        return self.folder / "archive"

    @property
    def unpacked(self) -> Path:
        """The folder of the unpacked contents."""
        return self.folder / "unpacked"

    def module(self, sha256: str) -> Path:
        """The path of one of the unpacked modules."""
        return self.unpacked / MODULES / f"{sha256}.wasm"

    def records(self) -> bytes:
        """The encoded records of the project, at most `RECORDS_LIMIT_BYTES`.

        Raises:
            UploadFileFailedError: the records cannot be read.
        """
        try:
            return (self.unpacked / RECORDS).read_bytes()
        except OSError as error:
            raise UploadFileFailedError(reason=str(error.strerror)) from error

    def read(self, limits: ReadLimits, memory_bytes: int = _MEMORY_BYTES) -> Contents:
        """Unpack and validate the file in a child process. Blocks.

        Raises:
            BadRequestError: the file cannot be imported; `fields` has the reason.
            UploadFileDiskLimitError: the disk has too little space.
            UploadFileFailedError: no process could be started.
        """
        bounds = Bounds(_CPU_S, _TIMEOUT_S, memory_bytes, limits.unpacked_bytes)
        arguments = ["read", str(self.archive), str(self.unpacked), *map(str, limits)]
        return self._run_child(arguments, b"", bounds, Contents)

    def build(self, target: Path, applet_ids: Mapping[int, int], map_bytes: int) -> bool:
        """Build the project's store in a child process. Blocks.

        Args:
            target: the folder to create; it is removed after a failure.
            applet_ids: the new id of each applet, by its old id.
            map_bytes: the size limit of the store in bytes.

        Returns:
            Whether a store was built; False if the file has no data.

        Raises:
            BadRequestError, UploadFileFailedError: as in `read`.
            StoreError: the store could not be written.
        """
        bounds = Bounds(_CPU_S, _TIMEOUT_S, _MEMORY_BYTES + map_bytes, 2 * map_bytes)
        arguments = ["build", str(self.unpacked), str(target), str(map_bytes)]
        data = json.dumps(list(applet_ids.items())).encode()
        try:
            return self._run_child(arguments, data, bounds, _Built).built
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)  # a killed child cannot remove it
            raise

    def _run_child(self, arguments: list[str], data: bytes, bounds: Bounds, kind: type[_T]) -> _T:
        try:
            output = run_confined(_MODULE, arguments, bounds, self.folder, data)
        except ConfinedError as error:
            raise _refused(str(error)) from None
        except OSError as error:
            raise UploadFileFailedError(reason=str(error.strerror)) from error
        answer = json.loads(output)
        if _REFUSED in answer:
            raise _refused(answer[_REFUSED])
        if _FAILED in answer:
            raise from_wire(*answer[_FAILED])
        return msgspec.convert(answer, kind)


def _refused(reason: str) -> BadRequestError:
    return BadRequestError(FieldError("file", reason, "body"))


def main(arguments: Sequence[str]) -> int:
    """Run one command in the child process; see the module's docstring."""
    command, *rest = arguments
    paths, numbers = [Path(text) for text in rest[:2]], [int(text) for text in rest[2:]]
    work = _read if command == "read" else _build
    answer: Any
    try:
        answer = work(paths[0], paths[1], *numbers)
    except StoreError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _OF_THE_DISK:
            failure = UploadFileFailedError(reason=str(cause.strerror))
            answer = {_FAILED: to_wire(failure)}
        else:
            answer = {_REFUSED: str(error).removeprefix(f"{paths[0]}: ")}
    except NodeError as error:
        answer = {_FAILED: to_wire(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _read(archive: Path, folder: Path, *limits: int) -> dict[str, Any]:
    folder.mkdir(mode=0o700)
    exported = read(archive, folder, ReadLimits(*limits))
    if reason := imported.find_problem(exported):
        return {_REFUSED: reason}
    return {
        "name": exported.project.name,
        "applets": [applet.applet_id for applet in exported.applets],
        "cron_jobs": len(exported.cron_jobs),
        "modules": {r.sha256: r.filename[:_NAME_LIMIT] for r in exported.resources},
        "dedicated": exported.project.dedicated,
    }


def _build(folder: Path, target: Path, map_bytes: int) -> dict[str, Any]:
    ids = dict(json.load(sys.stdin.buffer))
    return {"built": build_store(read_records(folder), folder, target, ids, map_bytes)}
