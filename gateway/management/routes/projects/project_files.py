"""Reading an imported project in a process that may die of it.

Any account may import a file. So the gateway looks into none: a child with limits unpacks it,
looks over the records and makes the store, and tells the gateway what the registry has to know.

`main(["read", ARCHIVE, FOLDER, UNPACKED_BYTES, MODULE_BYTES, RESERVE_BYTES])` and
`main(["build", FOLDER, TARGET, MAP_BYTES])`, which reads the new ids of the applets from its
standard input, print one line of JSON: the result, `{"refused": reason}` for what is wrong
with the file, or `{"failed": [name, details]}` for what is wrong with the node.
"""

from __future__ import annotations

import errno
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
_NAME_LIMIT = 255  # of a module's file, as file systems have it
_OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES})
_T = TypeVar("_T")
_REFUSED, _FAILED = "refused", "failed"


class Contents(msgspec.Struct, frozen=True):
    """What the gateway has to know of a project's file: the project's name, the ids that its
    applets had, how many cron jobs it has, and the names of its modules' files by SHA-256."""

    name: str
    applets: list[int]
    cron_jobs: int
    modules: dict[str, str]


class _Built(msgspec.Struct, frozen=True):
    built: bool


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A project's file on its way into the node; `folder` is its own, and goes with it."""

    folder: Path

    @property
    def archive(self) -> Path:
        """The file as it was sent."""
        return self.folder / "archive"

    @property
    def unpacked(self) -> Path:
        """The folder of what was in it."""
        return self.folder / "unpacked"

    def module(self, sha256: str) -> Path:
        """One of the modules in it."""
        return self.unpacked / MODULES / f"{sha256}.wasm"

    def records(self) -> bytes:
        """The records in it, encoded, at most `RECORDS_LIMIT_BYTES`.

        Raises:
            UploadFileFailedError: they cannot be read.
        """
        try:
            return (self.unpacked / RECORDS).read_bytes()
        except OSError as error:
            raise UploadFileFailedError(reason=str(error.strerror)) from error

    def read(self, limits: ReadLimits, memory_bytes: int = _MEMORY_BYTES) -> Contents:
        """Unpack the file and look it over in a child. Blocks.

        Raises:
            BadRequestError: it cannot be imported; `fields` says why.
            UploadFileDiskLimitError: the disk has no room for it.
            UploadFileFailedError: no process could be started.
        """
        bounds = Bounds(_CPU_S, _TIMEOUT_S, memory_bytes, limits.unpacked_bytes)
        arguments = ["read", str(self.archive), str(self.unpacked), *map(str, limits)]
        return self._asked(arguments, b"", bounds, Contents)

    def build(self, target: Path, applet_ids: Mapping[int, int], map_bytes: int) -> bool:
        """Make the project's store in a child; False when the file has no data. Blocks.

        Args:
            target: the folder to make; a failure leaves none.
            applet_ids: the new id of each applet.
            map_bytes: what the store may grow to.

        Raises:
            BadRequestError, UploadFileFailedError: as `read`.
            StoreError: the disk did not take it.
        """
        bounds = Bounds(_CPU_S, _TIMEOUT_S, _MEMORY_BYTES + map_bytes, 2 * map_bytes)
        arguments = ["build", str(self.unpacked), str(target), str(map_bytes)]
        data = json.dumps(list(applet_ids.items())).encode()
        try:
            return self._asked(arguments, data, bounds, _Built).built
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)  # a child that was killed left it
            raise

    def _asked(self, arguments: list[str], data: bytes, bounds: Bounds, kind: type[_T]) -> _T:
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
    """The child's side."""
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
    if reason := imported.problem_of(exported):
        return {_REFUSED: reason}
    return {
        "name": exported.project.name,
        "applets": [applet.applet_id for applet in exported.applets],
        "cron_jobs": len(exported.cron_jobs),
        "modules": {r.sha256: r.filename[:_NAME_LIMIT] for r in exported.resources},
    }


def _build(folder: Path, target: Path, map_bytes: int) -> dict[str, Any]:
    ids = dict(json.load(sys.stdin.buffer))
    return {"built": build_store(read_records(folder), folder, target, ids, map_bytes)}
